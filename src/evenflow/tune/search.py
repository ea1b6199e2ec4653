"""The search: simulate all, confirm a few live, refit the cost once, and look again.

    stage 0   grid --> contenders --> race --> cost refitted to the steps of the race
    stage 1   grid --> contenders that did not race yet, and the winner --> race --> the choice

Without a live engine the first grid is all there is. A simulated choice is a prediction; a live one was measured
against the others that could have been the best.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from evenflow.core.errors import EvenflowError
from evenflow.replay.result import ResultError, read_result, write_result
from evenflow.simulate.config import SimulationConfig
from evenflow.simulate.cost import StepCost
from evenflow.tune.grid import Grid, Load, Task, run_grid
from evenflow.tune.journal import Failed, Journal, Ran, Refitted
from evenflow.tune.live import LiveRun
from evenflow.tune.objective import Goal
from evenflow.tune.observations import Observations, observe
from evenflow.tune.race import Round, Standing, combined, stand
from evenflow.tune.ranking import Candidate, Ranking, rank
from evenflow.tune.settings import Illegal, Settings, settings_of
from evenflow.tune.space import Cell, Space
from evenflow.tune.turns import turns
from evenflow.tune.weigh import chosen

_MOST_STAND_INS = 3


class Live(Protocol):
    """A live engine that can be raced on, and taught from."""

    def run(self, settings: Settings, log: Path, *, name: str, seed: int) -> LiveRun:
        """Raises EvenflowError if it measured nothing."""
        ...

    def refit(self, logs: Sequence[Path], cost: StepCost, stage: int) -> StepCost | None:
        """A cost fitted to the steps of these runs too; None if they carry none."""
        ...


@dataclass(frozen=True, slots=True)
class Budget:
    """At most so many configurations race, over at most so many rounds, at that chance of an error."""

    max_live: int = 3
    max_rounds: int = 4
    error: float = 0.05


@dataclass(frozen=True, slots=True)
class Search:
    """`cells` are the legal ones. `tolerance` is how far a prediction may be off and still race."""

    space: Space
    cells: Mapping[Cell, SimulationConfig]
    illegal: tuple[Illegal, ...]
    goal: Goal
    load: Load
    cost: StepCost
    tolerance: float
    jobs: int = 1
    budget: Budget = Budget()


class Watch(Protocol):
    """Who shows how it goes."""

    def simulating(self, stage: int, done: int, total: int) -> None: ...

    def racing(self, stage: int, round_number: int, label: str, place: int, total: int) -> None: ...

    def stood(self, standing: Standing) -> None: ...

    def said(self, sentence: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Raced:
    """`rounds` are complete ones. `out` and `failed` say of cells why they stopped running, or could not run."""

    cells: tuple[Cell, ...]
    rounds: tuple[Round, ...]
    standing: Standing | None
    out: tuple[tuple[Cell, str], ...]
    failed: tuple[tuple[Cell, str], ...]

    def runs_of(self, cell: Cell) -> Observations | None:
        """All its rounds as one."""
        runs = [each[cell] for each in self.rounds if cell in each]
        return combined(runs) if runs else None


@dataclass(frozen=True, slots=True)
class Stage:
    cost: StepCost
    grid: Grid
    ranking: Ranking
    race: Raced | None


@dataclass(frozen=True, slots=True)
class Found:
    """`choice` is of a live run if there was one (`is_live`), else simulated. It keeps the limits if any cell does."""

    search: Search
    stages: tuple[Stage, ...]
    choice: Candidate
    is_live: bool
    simulated_seconds: float
    live_seconds: float
    resumed: bool
    weighed: str | None = None
    """Why the choice is not who was best live, if it is not."""

    @property
    def predicted(self) -> Ranking:
        return self.stages[-1].ranking

    @property
    def keeps_limits(self) -> bool:
        return self.choice.keeps_limits


def search(what: Search, journal: Journal, folder: Path, live: Live | None, watch: Watch) -> Found:
    """Raises EvenflowError if nothing could be run at all."""
    stages: list[Stage] = []
    cost = what.cost
    resumed = journal.is_resumed
    for number in (0, 1):
        task = Task(what.load, cost, what.goal)

        def progress(done: int, total: int, number: int = number) -> None:
            watch.simulating(number, done, total)

        grid = run_grid(what.cells, task, journal, folder, stage=number, jobs=what.jobs, progress=progress)
        ranking = rank(list(grid.runs.items()), what.goal, tolerance=what.tolerance)
        if live is None:
            stages.append(Stage(cost, grid, ranking, None))
            break
        entrants, reserve = _entrants(ranking, stages, what.budget.max_live)
        if len(stages) and len(entrants) <= 1:
            watch.said("the refitted cost names no configuration that has not raced yet")
            stages.append(Stage(cost, grid, ranking, None))
            break
        raced = _race(entrants, reserve, what, journal, folder, number, live, watch)
        stages.append(Stage(cost, grid, ranking, raced))
        if number == 1:
            break
        refitted = _refit(cost, journal, folder, live, number)
        if refitted is None:
            break
        cost = refitted
    choice, is_live, weighed = _choice(stages, what.tolerance)
    return Found(
        what,
        tuple(stages),
        choice,
        is_live,
        journal.seconds_of(live=False),
        journal.seconds_of(live=True),
        resumed,
        weighed,
    )


def _entrants(ranking: Ranking, stages: Sequence[Stage], most: int) -> tuple[tuple[Cell, ...], tuple[Cell, ...]]:
    """Who races, the most promising first, and who stands in for one that does not start. Later stages bring the winner
    so far and who has not raced yet."""
    cells = [each.cell for each in ranking.contenders]
    twins = [twin for group in ranking.twins for twin in group]
    if not stages or stages[0].race is None or stages[0].race.standing is None:
        other = ranking.next_best()
        if len(cells) < 2 <= most and other is not None:
            cells.append(other.cell)  # a prediction is put to the test even where the simulation has no doubt
        return tuple(cells[:most]), (*cells[most:], *twins)
    before = stages[0].race
    assert before.standing is not None
    known = {*before.cells, *(twin for group in stages[0].ranking.twins for twin in group)}
    new = [cell for cell in cells[:most] if cell not in known]
    return (before.standing.ranking.nearest.cell, *new[: most - 1]), ()


def _refit(cost: StepCost, journal: Journal, folder: Path, live: Live, stage: int) -> StepCost | None:
    """To the runs of that stage, also in a search that goes on after a later one: the same logs give the same cost."""
    began = time.monotonic()
    logs = [folder / each.log for each in journal.entries if isinstance(each, Ran) and each.stage <= stage]
    found = live.refit(logs, cost, stage + 1)
    if found is not None and journal.refitted(stage + 1) is None:
        journal.add(Refitted(stage + 1, len(logs), time.monotonic() - began))
    return found


def _choice(stages: Sequence[Stage], tolerance: float) -> tuple[Candidate, bool, str | None]:
    """Of the last race that told anything; else the most promising that did not fail where it was tried."""
    for stage in reversed(stages):
        if stage.race is not None and stage.race.standing is not None:
            choice, why = chosen(stage.race.standing, stages[-1].ranking, tolerance)
            return choice, True, why
    ranking = stages[-1].ranking
    failed = {cell for stage in stages if stage.race is not None for cell, _ in stage.race.failed}
    left = [each for each in ranking.contenders if each.cell not in failed]
    return next(iter(left), ranking.nearest), False, None


def _race(
    entrants: Sequence[Cell],
    reserve: Sequence[Cell],
    what: Search,
    journal: Journal,
    folder: Path,
    stage: int,
    live: Live,
    watch: Watch,
) -> Raced:
    (folder / "live").mkdir(exist_ok=True)
    rounds: list[Round] = []
    failed: dict[Cell, str] = {}
    out: dict[Cell, str] = {}
    standing: Standing | None = None
    running: Sequence[Cell] = tuple(entrants)
    waiting = list(reserve)
    entered: list[Cell] = []
    for number in range(what.budget.max_rounds):
        order = turns(sorted(running, key=lambda each: each.key), number, what.load.seed)
        ran: dict[Cell, Observations] = {}
        for place, cell in enumerate(order):
            watch.racing(stage, number + 1, what.space.label(cell), place + 1, len(order))
            entered += [cell] if not number else []
            outcome = run_once(cell, stage, number, what, journal, folder, live)
            if isinstance(outcome, str):
                failed[cell] = outcome
                if not number and waiting and len(failed) <= _MOST_STAND_INS:
                    order.append(waiting.pop(0))
                watch.said(f"{what.space.label(cell)} failed: {outcome}")
            else:
                ran[cell] = outcome
        if not ran:
            break
        rounds.append(ran)
        standing = stand(rounds, what.goal, max_rounds=what.budget.max_rounds, error=what.budget.error)
        watch.stood(standing)
        out = dict(standing.out) | out  # the first reason is the true one
        if standing.stop is not None:
            break
        running = standing.running
    return Raced(tuple(entered), tuple(rounds), standing, tuple(out.items()), tuple(failed.items()))


def run_once(
    cell: Cell, stage: int, number: int, what: Search, journal: Journal, folder: Path, live: Live
) -> Observations | str:
    """Of this run, or of the one that the journal has; a sentence if it failed."""
    known = journal.ran(stage).get((number, cell.key))
    if isinstance(known, Failed):
        return known.why
    name = f"live/{stage}-{number + 1}-{list(what.cells).index(cell):04d}"
    if isinstance(known, Ran):
        try:
            result = read_result(folder / known.file)
        except ResultError as error:
            return str(error)
        return observe(replace(result, warm_up_seconds=what.load.warm_up_seconds), what.goal)
    began = time.monotonic()
    log = f"{name}.events.jsonl"
    try:
        done = live.run(settings_of(cell), folder / log, name=what.space.label(cell), seed=what.load.seed + number)
        write_result(done.result, {}, folder / f"{name}.json.gz")
    except EvenflowError as error:
        journal.add(Failed(stage, cell.key, str(error), time.monotonic() - began, number))
        return str(error)
    journal.add(Ran(stage, number, cell.key, f"{name}.json.gz", log, done.seconds))
    return observe(replace(done.result, warm_up_seconds=what.load.warm_up_seconds), what.goal)
