"""The bench of recording in a server's arrangement: turns, and a stopwatch at every place where an event is made."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from evenflow.bench import served_recording
from evenflow.bench.policies.loads import w1_load
from evenflow.bench.served_recording import MOST_LOSS, MOST_MICROSECONDS, ServedRecording, measure
from evenflow.bench.watched_engine import STEPS_OF_A_TURN, YOUR_TURN, Turns
from evenflow.core.events import Finished, StepRecord
from evenflow.core.request import RequestId
from evenflow.engine.config import Dtype, EngineConfig
from evenflow.engine.messages import Abort, Command
from evenflow.observe.log import read_log
from evenflow.workload.peer_format import PeerRequest
from tiny_models import tiny_model

COST = ServedRecording(1, 10, 100.0, 100.0, MOST_LOSS, MOST_MICROSECONDS - 5.0, 5.0, 300.0, 30.0, 40.0)


@pytest.mark.parametrize(
    ("cost", "met"),
    [
        (COST, True),
        (replace(COST, loss=MOST_LOSS + 0.001), False),
        (replace(COST, packing_us=5.1), False),
        (replace(COST, making_us=MOST_MICROSECONDS), False),
    ],
)
def test_the_limits_are_held_against_the_loss_and_what_a_step_waits_for(cost: ServedRecording, met: bool) -> None:
    assert cost.met is met


class Script:
    """What arrives, batch by batch; a wait brings the next."""

    def __init__(self, *batches: Sequence[Command]) -> None:
        self._batches = list(batches)
        self._arrived: list[Command] = []

    def drain(self) -> Sequence[Command]:
        arrived, self._arrived = self._arrived, []
        return arrived

    def wait(self) -> bool:
        if not self._batches:
            return False
        self._arrived += self._batches.pop(0)
        return True


def test_a_turn_is_so_many_steps_and_commands_wait_for_it() -> None:
    one, two = (Abort(RequestId(name)) for name in "ab")
    inbox = Turns(Script([one], [YOUR_TURN], [two, YOUR_TURN]))
    drained = [list(inbox.drain()) for _ in range(STEPS_OF_A_TURN + 1)]
    assert drained == [[one], *[[]] * (STEPS_OF_A_TURN - 1), [two]]


def test_what_is_left_of_a_turn_is_forgotten_when_there_is_nothing_to_do() -> None:
    late = Abort(RequestId("late"))
    inbox = Turns(Script([YOUR_TURN], [late], [YOUR_TURN]))
    assert inbox.drain() == []
    assert inbox.wait()
    assert inbox.drain() == [late], "granted by the second turn"


class Letters:
    def token_bytes(self, token_id: int, /) -> bytes:
        return b"x"

    def is_special(self, token_id: int, /) -> bool:
        return False

    def decode(self, token_ids: Sequence[int], /, *, skip_special_tokens: bool = True) -> str:
        return "x" * len(token_ids)


@pytest.mark.slow
def test_two_engines_play_the_whole_load_and_the_front_of_one_writes_it_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every event passes a stopwatch: else the engine says so, and there are no figures."""
    tiny_model("llama").save_pretrained(tmp_path)
    config = EngineConfig(model=str(tmp_path), dtype=Dtype.FP32, threads=1, block_size=16, kv_memory="4MiB")
    load = [PeerRequest(n, "", tuple(range(n, n + 20)), 12) for n in range(6)]
    monkeypatch.setattr(served_recording, "warm_up_load", lambda *_: w1_load(load[:2], 99))
    cost = asyncio.run(measure(config, Letters(), load, tmp_path, rounds=2))
    with read_log(tmp_path / "served.jsonl") as log:
        events = list(log)
    steps = [event for event in events if isinstance(event, StepRecord)]
    assert cost.rounds == 2
    assert cost.steps == len(steps) >= 12
    assert [event.num_output_tokens for event in events if isinstance(event, Finished)] == [12] * 6
    assert min(cost.making_us, cost.log_us, cost.folds_us, cost.plain_tokens_per_second) > 0.0
