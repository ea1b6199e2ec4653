"""One live run of one configuration: a server of its own, the window of the trace, and an end in order.

Every run has a fresh server, as a deployment would: no cache is warm from the run before, nothing learned. The content
of the prompts is the same for all configurations of a round.
"""

import time
from dataclasses import dataclass, replace
from pathlib import Path

from evenflow.core.errors import EvenflowError
from evenflow.engine.config import EngineConfig
from evenflow.replay.assess import assess
from evenflow.replay.client import INTERRUPTED
from evenflow.replay.precise_loop import run_precisely
from evenflow.replay.result import Result
from evenflow.replay.run import Replay, replay
from evenflow.replay.server_process import server_process
from evenflow.replay.watch import Watcher
from evenflow.tune.settings import Settings, arguments_of, live


class LiveError(EvenflowError):
    """A live run that measured nothing; the message says why."""


@dataclass(frozen=True, slots=True)
class LiveRun:
    """`log` is the server's event log. `seconds` is from the server's start to its end."""

    result: Result
    log: Path
    seconds: float
    faults: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LiveEngine:
    """`load` is what to replay, for any server: its URL is not looked at."""

    base: EngineConfig
    load: Replay

    def run(self, settings: Settings, log: Path, *, name: str, seed: int, watch: Watcher) -> LiveRun:
        """Raises EvenflowError: LiveError for a run that measured nothing, or what the server or the client says."""
        began = time.monotonic()
        arguments = [*arguments_of(live(settings, self.base)), "--port", "0", "--event-log", str(log)]
        with server_process(arguments) as server:
            what = replace(self.load, name=name, url=server.url(), content_seed=seed)
            result = run_precisely(lambda: replay(what, watch=watch))
        seconds = time.monotonic() - began
        if result.gave_up == INTERRUPTED:
            raise KeyboardInterrupt
        assessed = assess(replace(result, slo=None))
        if not assessed.measured.num_ok:
            raise LiveError(f"no request went well: {'; '.join(assessed.verdict.faults)}")
        return LiveRun(result, log, seconds, assessed.verdict.faults)
