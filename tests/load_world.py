"""A load run against a server that does as its script says, in virtual time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from evenflow.replay.client import Outcome, run_load
from evenflow.replay.connection import parse_url
from evenflow.replay.noop_server import NoopServer, Script, at_once
from evenflow.replay.pacing import OpenLoop, Pacing, Patience
from evenflow.replay.prompts import IdPrompts
from evenflow.replay.record import Record, records_of
from evenflow.replay.request import PlannedRequest
from evenflow.replay.target import Endpoint, Target
from virtual_loop import VirtualLoop, run_virtually

PORT = 8000
POOL = range(100, 1100)


def plans(count: int, gap: float, *, prompt: int = 8, output: int = 4) -> list[PlannedRequest]:
    return [PlannedRequest(index, f"r{index}", index * gap, prompt, output) for index in range(count)]


@dataclass(frozen=True, slots=True)
class Seen:
    outcome: Outcome
    server: NoopServer

    @property
    def records(self) -> tuple[Record, ...]:
        return records_of(self.outcome)

    @property
    def good(self) -> list[Record]:
        return [record for record in self.records if record.ok]

    def details(self) -> list[str]:
        return [record.detail or "" for record in self.records]


def nothing_happens(loop: VirtualLoop) -> None:
    pass


def load(
    planned: Sequence[PlannedRequest],
    script: Script = at_once,
    *,
    pacing: Pacing = OpenLoop(),
    patience: Patience = Patience(),
    endpoint: Endpoint = Endpoint.COMPLETIONS,
    seed: int = 1,
    server: NoopServer | None = None,
    meanwhile: Callable[[VirtualLoop], None] = nothing_happens,
) -> Seen:
    """`meanwhile` may schedule what else happens on the loop."""
    serving = server or NoopServer()
    serving.script = script
    target = Target(parse_url(f"http://127.0.0.1:{PORT}"), "noop", endpoint)

    async def main(loop: VirtualLoop) -> Outcome:
        loop.listen(PORT, serving.protocol)
        meanwhile(loop)
        return await run_load(target, planned, IdPrompts(POOL, seed), pacing=pacing, patience=patience)

    return Seen(run_virtually(main), serving)
