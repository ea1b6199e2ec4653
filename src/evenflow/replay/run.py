"""One replay from a trace and a URL to a result: look at the server, make the load, send it, keep what was seen."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version

from evenflow.replay.client import Outcome, run_load
from evenflow.replay.connection import parse_url
from evenflow.replay.load import Load, LoadOptions, make_load
from evenflow.replay.pacing import ClosedLoop, OpenLoop, Pacing, Patience
from evenflow.replay.preflight import LocalTokenizer, Ready, check
from evenflow.replay.record import records_of
from evenflow.replay.result import Result, thinned
from evenflow.replay.server_facts import ServerQuestions, questions_client
from evenflow.replay.slo import parse_bounds
from evenflow.replay.target import Endpoint, Target
from evenflow.replay.watch import Watcher, nobody_watches
from evenflow.workload.trace import Trace


def new_seed() -> int:
    """Of the content of prompts: another one each time, so that no run finds what it sends in a cache."""
    return secrets.randbits(63)


@dataclass(frozen=True, slots=True)
class Replay:
    """`model` None is the first that the server lists. `fields` are more fields of every request's body."""

    name: str
    url: str
    trace: Trace
    load: LoadOptions = LoadOptions()
    pacing: Pacing = OpenLoop()
    patience: Patience = Patience()
    model: str | None = None
    endpoint: Endpoint = Endpoint.COMPLETIONS
    api_key: str | None = None
    fields: tuple[tuple[str, object], ...] = ()
    tokenizer: LocalTokenizer | None = None
    content_seed: int | None = None
    warm_up_seconds: float | None = None
    slo: str | None = None

    def __post_init__(self) -> None:
        if self.slo is not None:
            parse_bounds(self.slo)


Announce = Callable[[Ready, Load], None]


def nobody_listens(ready: Ready, load: Load) -> None:
    pass


async def replay(what: Replay, *, announce: Announce = nobody_listens, watch: Watcher = nobody_watches) -> Result:
    """Raises ServerUnusable, ConfigError. `announce` is told what will be sent, just before it is."""
    seed = new_seed() if what.content_seed is None else what.content_seed
    target = Target(parse_url(what.url), "", what.endpoint, what.api_key, dict(what.fields))
    base_url = what.url.rstrip("/").removesuffix("/v1")
    async with questions_client(what.api_key) as http:
        ready = await check(
            target, ServerQuestions(http, base_url), model=what.model, tokenizer=what.tokenizer, seed=seed
        )
    options = what.load
    if isinstance(what.pacing, ClosedLoop) and what.trace.time_unit is None and options.arrivals == "recorded":
        # Users ask in turn; times would not be looked at.
        load = make_load(replace(what.trace, time_unit="s"), options, ready.facts.max_model_len)
    else:
        load = make_load(what.trace, options, ready.facts.max_model_len)
    announce(ready, load)
    began = datetime.now(UTC).isoformat(timespec="seconds")
    outcome = await run_load(
        ready.target, load.plans, ready.prompts, pacing=what.pacing, patience=what.patience, watch=watch
    )
    return _result(what, ready, load, outcome, seed, began)


def _result(what: Replay, ready: Ready, load: Load, outcome: Outcome, seed: int, began: str) -> Result:
    records = records_of(outcome)
    by_the_clock: tuple[str, ...] = ()
    if isinstance(what.pacing, ClosedLoop) and what.pacing.seconds is not None and outcome.gave_up is None:
        # Such a run has not promised to send everything.
        taken = tuple(record for record in records if record.sent is not None or record.reason is not None)
        by_the_clock = (f"{len(taken)} of {len(records)} requests were begun in {what.pacing.seconds:g} s",)
        records = taken
    return Result(
        name=what.name,
        began=began,
        version=version("evenflow"),
        target={
            "url": what.url,
            "model": ready.facts.model,
            "server": ready.facts.software,
            "endpoint": ready.target.endpoint.value,
            "prompts": ready.prompts.form,
            "connections": str(outcome.num_connections),
        },
        load={**load.facts, "pacing": what.pacing.describe(), "content seed": f"{seed:x}"},
        notes=(*load.notes, *ready.notes, *by_the_clock),
        open_loop=isinstance(what.pacing, OpenLoop),
        warm_up_seconds=what.warm_up_seconds,
        slo=what.slo,
        loop_lags=thinned(outcome.loop_lags),
        gave_up=outcome.gave_up,
        records=records,
    )
