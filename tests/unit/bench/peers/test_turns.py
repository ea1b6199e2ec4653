"""Turns: everybody once per round, one at a time, and without those that failed."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from evenflow.bench.peers.engines import Batch, SingleStream
from evenflow.bench.peers.messages import ContenderFailed
from evenflow.bench.peers.turns import Field
from evenflow.workload.peer_format import PeerRequest


@dataclass(slots=True, eq=False)
class Stage:
    """Whoever is awake, and what happened."""

    awake: set[str] = field(default_factory=set)
    events: list[str] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class StagedEngine:
    """Awake when it has started, like a process; fails from its `fails_at`-th batch on."""

    name: str
    stage: Stage
    fails_at: int = 1000
    batches: int = 0
    session: int = 0
    version: str = "1"
    start_seconds: float = 0.0

    def __post_init__(self) -> None:
        assert not self.stage.awake
        self.stage.awake.add(self.name)

    def batch(self, requests: Sequence[PeerRequest]) -> Batch:
        assert self.stage.awake == {self.name}, "never two at once"
        self.batches += 1
        if self.batches >= self.fails_at:
            raise ContenderFailed(f"{self.name} broke")
        self.stage.events.append(self.name)
        return Batch(float(self.batches), 0, 0)

    def single(self, request: PeerRequest) -> SingleStream:
        raise AssertionError("not asked for here")

    def pause(self) -> None:
        self.stage.awake.discard(self.name)

    def resume(self) -> None:
        self.stage.awake.add(self.name)

    def end(self) -> None:
        self.stage.awake.discard(self.name)
        self.stage.events.append(f"{self.name} ended")


def enter(players: Field[StagedEngine], stage: Stage, name: str, fails_at: int = 1000) -> None:
    """Its first batch warms up."""
    players.enter(name, lambda: StagedEngine(name, stage, fails_at), lambda engine: engine.batch([]))


def measure(name: str, engine: StagedEngine) -> float:
    return engine.batch([]).wall_seconds


def test_contenders_alternate() -> None:
    stage, players = Stage(), Field[StagedEngine]()
    for name in "abc":
        enter(players, stage, name)
    told: list[tuple[str, int]] = []
    seen = players.rounds("abc", 2, measure, lambda name, index: told.append((name, index)))
    players.end()
    assert "".join(stage.events[:9]) == "abcabcabc"
    assert seen == {name: [2.0, 3.0] for name in "abc"}
    assert told == [(name, index) for index in range(2) for name in "abc"]
    assert players.others.keys() == set("abc")
    assert stage.events[9:] == ["a ended", "b ended", "c ended"]


def test_one_that_fails_is_ended_and_the_rest_goes_on() -> None:
    stage, players = Stage(), Field[StagedEngine]()
    enter(players, stage, "a")
    enter(players, stage, "b", fails_at=3)
    seen = players.rounds("ab", 3, measure)
    assert seen == {"a": [2.0, 3.0, 4.0]}
    assert stage.events == ["a", "b", "a", "b", "a", "b ended", "a"]
    assert players.failures == {"b": "b broke"}
    assert players.rounds("ab", 1, measure) == {"a": [5.0]}


def test_one_that_fails_its_warm_up_takes_no_part() -> None:
    stage, players = Stage(), Field[StagedEngine]()
    enter(players, stage, "a", fails_at=1)
    assert stage.events == ["a ended"]
    assert players.rounds("a", 1, measure) == {}


def test_one_that_does_not_start_takes_no_part() -> None:
    def start() -> StagedEngine:
        raise ContenderFailed("no such file")

    players = Field[StagedEngine]()
    assert players.enter("a", start, lambda engine: None) is None
    assert players.failures == {"a": "no such file"}


def test_an_error_of_ours_is_not_a_failure_of_theirs() -> None:
    stage, players = Stage(), Field[StagedEngine]()
    enter(players, stage, "a")

    def broken(name: str, engine: StagedEngine) -> float:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        players.rounds("a", 1, broken)
    assert stage.awake == set(), "held still, and still there to be ended"
    players.end()
    assert stage.events[-1] == "a ended"
