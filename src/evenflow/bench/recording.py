"""What recording would cost if all of it stood in the engine's way: in one process, step by step in turns.

Two engines on one model play W1. After each step of the one that records, its events go where a server's front sends
them: into the log file, the metrics, the tails by group and the memory of the latest events. A server does this in
another process than the engine (served_recording.py is about that); here nothing else runs meanwhile and every cache is
cold, so this is the most that it can be, and it is the same work.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeGuard

from evenflow.bench.policies.loads import w1_load, warm_up
from evenflow.bench.policies.play import Played, engine_on, play_in_turns
from evenflow.bench.recorder import Recorder, by_step, replayed
from evenflow.bench.rounds import medians
from evenflow.bench.served_recording import MOST_LOSS, MOST_MICROSECONDS, POLICY
from evenflow.core.events import Event, StepRecord
from evenflow.core.policy.presets import policy_of
from evenflow.engine.build import load_model
from evenflow.engine.config import EngineConfig
from evenflow.workload.peer_format import PeerRequest

_DECODING_STEPS = 2000
_GOES = 5
# The clock goes on in the other engine's turns: two seconds of it are one of this engine's.
_FLUSH_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class RecordingCost:
    """Medians over the rounds. `loss` is the share of throughput; `log` and `folds` are microseconds per step.

    `warm_us_per_step` and `cold_us_per_step` are of the last round's events, fed again without a model, the second time
    with the caches emptied before each step (recorder.py).
    `decode_us_per_step` is what both take for one of many steps in a row that give the same `decode_tokens` requests a
    token each and do nothing else, without a model's work in between.
    """

    rounds: int
    steps: int
    plain_tokens_per_second: float
    recording_tokens_per_second: float
    loss: float
    us_per_step: float
    log_us_per_step: float
    folds_us_per_step: float
    log_bytes_per_step: float
    warm_us_per_step: float = 0.0
    cold_us_per_step: float = 0.0
    decode_tokens: int = 0
    decode_us_per_step: float = 0.0

    @property
    def met(self) -> bool:
        """Whether it would do even so."""
        return self.loss <= MOST_LOSS and self.us_per_step <= MOST_MICROSECONDS


def measure(
    config: EngineConfig,
    workload: Sequence[PeerRequest],
    log: Path,
    *,
    rounds: int,
    progress: Callable[[str], None] = lambda what: None,
) -> RecordingCost:
    """`log` is a file for the event log; it is written anew in every round. Another is put beside it."""
    progress("loading the model")
    # Every round brings the same prompts again.
    config = replace(config, prefix_caching=config.prefix_caching is True)
    model = load_model(config)
    engines = {name: engine_on(model, config, policy_of(POLICY)) for name in ("plain", "recording")}
    for name, core in engines.items():
        progress(f"warming up: {name}")
        warm_up(core, model.vocab_size, 0)
    found, events = [], tuple[Event, ...]()
    for number in range(rounds):
        progress(f"round {number + 1} of {rounds}, in one process")
        recorder = Recorder(log, flush_seconds=_FLUSH_SECONDS)
        with recorder.log:
            # Who begins would have the machine to itself at the end: they take turns at that too.
            names = sorted(engines, reverse=bool(number % 2))
            in_turn = {name: engines[name] for name in names}
            played = play_in_turns(in_turn, w1_load(workload, number), after_step={"recording": recorder.take})
            recorder.settle()
        found.append(_round(played, recorder, log))
        events = played["recording"].events
    progress("the same events again")
    beside, steps = log.with_name(f"{log.name}.again"), by_step(events)
    warm, cold = (_fed_again(steps, beside, cold=cold) for cold in (False, True))
    cost = replace(medians(found), warm_us_per_step=warm, cold_us_per_step=cold)
    progress("decoding steps alone")
    decodes = filter(_only_decodes, events)
    decode = max(decodes, key=lambda step: step.num_scheduled, default=None)
    if decode is None:
        return cost
    return replace(cost, decode_tokens=decode.num_scheduled, decode_us_per_step=_decoding(decode, beside))


def _fed_again(steps: Sequence[Sequence[Event]], log: Path, *, cold: bool) -> float:
    return sum(replayed(steps, log, goes=2 if cold else _GOES, cold=cold, flush_seconds=_FLUSH_SECONDS))


def _only_decodes(event: Event) -> TypeGuard[StepRecord]:
    return isinstance(event, StepRecord) and event.prefill_tokens == 0


def _decoding(step: StepRecord, log: Path) -> float:
    """Microseconds per step, the best of some goes."""
    seconds = step.end - step.start
    steps = [
        (step._replace(step=step.step + n, start=step.start + n * seconds, end=step.end + n * seconds),)
        for n in range(_DECODING_STEPS)
    ]
    return sum(replayed(steps, log, goes=_GOES))


def _round(played: Mapping[str, Played], recorder: Recorder, log: Path) -> RecordingCost:
    rates = {}
    for name, run in played.items():
        steps = [event for event in run.events if isinstance(event, StepRecord)]
        rates[name] = sum(len(step.emitted) for step in steps) / run.seconds
    num_steps = sum(isinstance(event, StepRecord) for event in played["recording"].events)
    return RecordingCost(
        rounds=1,
        steps=num_steps,
        plain_tokens_per_second=rates["plain"],
        recording_tokens_per_second=rates["recording"],
        loss=1.0 - rates["recording"] / rates["plain"],
        us_per_step=1e6 * (recorder.log_seconds + recorder.folds_seconds) / num_steps,
        log_us_per_step=1e6 * recorder.log_seconds / num_steps,
        folds_us_per_step=1e6 * recorder.folds_seconds / num_steps,
        log_bytes_per_step=log.stat().st_size / num_steps,
    )
