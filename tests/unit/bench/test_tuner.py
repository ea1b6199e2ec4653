"""The tuner's bench on machines that never were: what is told of the choice when the truth is known."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import exp
from pathlib import Path
from random import Random

import pytest

from evenflow.bench.tuner import MOST_REGRET, Regret, Verdict, measure, verdict_of
from evenflow.core.errors import EvenflowError
from evenflow.observe.log import EventLogWriter
from evenflow.replay.bootstrap import Interval
from evenflow.replay.request import PlannedRequest
from evenflow.simulate.config import SimulationConfig
from evenflow.simulate.cost import StepCost
from evenflow.simulate.run import simulate
from evenflow.tune.grid import Load
from evenflow.tune.live import LiveRun
from evenflow.tune.objective import parse_goal
from evenflow.tune.pace import at_pace
from evenflow.tune.race import Standing
from evenflow.tune.search import Budget, Search
from evenflow.tune.settings import Settings, legal_cells, simulated
from evenflow.tune.space import make_space
from tuning_runs import device

BASE = SimulationConfig(num_blocks=2000, prefix_caching=False)
COST = device()
# 16 and 17 seats are never all taken.
VARY = ("max_num_seqs=2,16,17", "max_num_batched_tokens=1024", "policy=vllm", "policy.reserve=prompt")


def plans() -> tuple[PlannedRequest, ...]:
    rng = Random(7)
    times = sorted(rng.uniform(0.0, 2.5) for _ in range(20))
    return tuple(
        PlannedRequest(i, f"r{i}", at, rng.randrange(100, 900), rng.randrange(4, 30)) for i, at in enumerate(times)
    )


def what() -> Search:
    space = make_space(VARY)
    cells, illegal = legal_cells(space, BASE, None)
    return Search(
        space, cells, illegal, parse_goal("e2e_mean", None), Load(plans(), 0.0, 3), COST, 0.05, 1, Budget(2, 2)
    )


@dataclass
class Machine:
    """A simulated engine at another pace in each run; `secret` is what a configuration loses that no cost knows of."""

    seed: int
    noise: float
    writes_log: bool = True
    secret: dict[int, float] = field(default_factory=dict)
    broken: frozenset[int] = frozenset()
    order: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._rng = Random(self.seed)

    def run(self, settings: Settings, log: Path, *, name: str, seed: int) -> LiveRun:
        if settings.max_num_seqs in self.broken:
            raise EvenflowError("the server did not start")
        self.order.append(settings.max_num_seqs)
        pace = exp(self._rng.gauss(0.0, self.noise)) * self.secret.get(settings.max_num_seqs, 1.0)
        log.write_text("")
        with EventLogWriter(log) as writer:
            done = simulate(
                plans(),
                at_pace(COST, pace),
                simulated(settings, BASE, None),
                seed=seed,
                sink=(lambda replica, events: writer.write(events)) if self.writes_log else None,
            )
        return LiveRun(done.result, log, 10.0, ())

    def refit(self, logs: Sequence[Path], cost: StepCost, stage: int) -> StepCost | None:
        return None


@dataclass
class Nobody:
    def simulating(self, stage: int, done: int, total: int) -> None: ...

    def racing(self, stage: int, round_number: int, label: str, place: int, total: int) -> None: ...

    def stood(self, standing: Standing) -> None: ...

    def said(self, sentence: str) -> None: ...


def bench(machine: Machine, folder: Path, *, rounds: int = 4, said: list[str] | None = None) -> Regret:
    told = said if said is not None else []
    return measure(
        what(), machine, folder, rounds=rounds, calibration_seconds=20.0, watch=Nobody(), progress=told.append
    )


def test_equal_settings_are_one_and_their_runs_are_pooled(tmp_path: Path) -> None:
    said: list[str] = []
    found = bench(Machine(1, 0.1), tmp_path, said=said)
    assert [tuple(cell["max_num_seqs"] for cell in each.cells) for each in found.settings] == [(2,), (17, 16)]
    assert [each.num_runs for each in found.settings] == [4, 8]
    assert said[0] == "equal, as simulated: seqs 17; seqs 16"
    assert "run 12 of 12, about 10 s to go" in said[-1]
    assert found.noise is not None
    assert found.noise.degrees == 4
    assert found.grid_seconds == 120.0
    assert found.chosen.key == found.settings[1].key


def test_the_machine_alone_is_not_called_a_difference(tmp_path: Path) -> None:
    """Its noise is all that 16 and 17 seats differ by, and it is taken off: the choice is told to be good."""
    found = bench(Machine(2, 0.15), tmp_path, rounds=6)
    assert found.evidence.is_corrected, found.evidence.why
    assert found.evidence.decides.sd < 0.2 * found.evidence.raw.sd
    assert found.verdict is Verdict.MET
    assert found.lost.high is not None
    assert found.lost.high <= MOST_REGRET
    assert found.best is found.chosen


def test_without_logs_the_raw_figures_decide_and_say_how_little_they_know(tmp_path: Path) -> None:
    found = bench(Machine(2, 0.3, writes_log=False), tmp_path)
    assert not found.evidence.is_corrected
    assert found.evidence.corrected is None
    assert found.lost.high is not None
    assert found.lost.high > found.lost.estimate


def test_a_choice_that_is_truly_worse_is_found_out(tmp_path: Path) -> None:
    """What the simulation takes for the best is half as slow again live, and the tuner may not see it in two rounds;
    the grid does, and does not let the pace of those runs excuse it."""
    machine = Machine(3, 0.02, secret={16: 3.0, 17: 3.0})
    found = bench(machine, tmp_path, rounds=6)
    worse = found.evidence.raw.difference(found.settings[0].key, found.settings[1].key)
    assert worse.excludes_zero
    assert worse.estimate > 0.0
    assert not found.evidence.is_corrected
    assert "went with the setting" in found.evidence.why
    blind = replace(found, chosen=found.settings[1])
    assert blind.verdict is Verdict.MISSED


def test_rounds_are_counterbalanced_and_a_bench_goes_on_where_it_stopped(tmp_path: Path) -> None:
    machine = Machine(1, 0.1)
    first = bench(machine, tmp_path)
    assert machine.order[:3] == machine.order[5:2:-1]
    again = Machine(9, 0.1)
    assert bench(again, tmp_path).lost == first.lost
    assert again.order == []


def test_a_cell_that_never_starts_is_noted(tmp_path: Path) -> None:
    found = bench(Machine(1, 0.1, broken=frozenset({2})), tmp_path)
    assert [cell["max_num_seqs"] for cell, _ in found.failed] == [2]
    assert [each.cells[0]["max_num_seqs"] for each in found.settings] == [17]
    assert found.verdict is Verdict.MET, "there is nothing else"
    with pytest.raises(EvenflowError, match="no cell of the grid ran"):
        bench(Machine(1, 0.1, broken=frozenset({2, 16, 17})), tmp_path / "none")


def test_what_is_asked_is_of_the_whole_interval() -> None:
    assert verdict_of(Interval(0.01, 0.0, 0.029)) is Verdict.MET
    assert verdict_of(Interval(0.01, 0.0, 0.08)) is Verdict.OPEN
    assert verdict_of(Interval(0.10, 0.04, 0.2)) is Verdict.MISSED
    assert verdict_of(Interval(0.01, None, None)) is Verdict.OPEN
