"""The tuner against the whole grid measured live: how good is its choice, and what did it cost?

    grid    every cell runs the load once in a round, in rounds that are counterbalanced (turns.py); short runs, many
            rounds, because a round is one observation of the machine
    equal   cells whose simulated runs are the same are one setting (equal.py), with the runs of all of them
    tuner   a search of its own: simulation, races, one refit; nothing is taken over from the grid
    regret  the chosen setting against the best one, by rounds (blocked.py), raw and with the machine's pace taken off;
            which of the two decides is evidence.py's rule

The best of many measured cells is flattered by its luck, so the regret is, if anything, overstated; its interval is
against whichever is the best. What is asked is met if the whole interval is within 3 %, missed if none of it is, and
else the runs cannot tell. What the tuner took is all its live runs and simulations and the calibration of its cost;
what the grid took is its live runs, every cell's.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from math import exp, inf
from pathlib import Path

from evenflow.core.errors import EvenflowError
from evenflow.observe.summary import format_seconds
from evenflow.replay.bootstrap import Interval
from evenflow.tune.blocked import Blocked, Run
from evenflow.tune.effects import value
from evenflow.tune.equal import equal_cells
from evenflow.tune.evidence import Evidence, Noise, evidence_of, noise_of
from evenflow.tune.grid import Task, run_grid
from evenflow.tune.journal import Journal, Ran
from evenflow.tune.objective import Goal
from evenflow.tune.observations import Observations
from evenflow.tune.pace import expected, pace_of
from evenflow.tune.race import combined, log_loss
from evenflow.tune.search import Found, Live, Search, Watch, run_once, search
from evenflow.tune.space import Cell
from evenflow.tune.turns import turns

MOST_REGRET = 0.03
MOST_SHARE = 1 / 3

Progress = Callable[[str], None]


class Verdict(Enum):
    MET = "met"
    MISSED = "missed"
    OPEN = "these runs cannot tell"


@dataclass(frozen=True, slots=True)
class Setting:
    """Cells that are one setting, the one that stands for them first. `worst_ratio` is against its limits."""

    cells: tuple[Cell, ...]
    num_runs: int
    worst_ratio: float

    @property
    def key(self) -> str:
        return self.cells[0].key


@dataclass(frozen=True, slots=True)
class Regret:
    """`lost` is what the choice loses against the best setting, as a share, by the evidence that decides."""

    goal: Goal
    settings: tuple[Setting, ...]
    evidence: Evidence
    noise: Noise | None
    found: Found
    chosen: Setting
    rivals: tuple[Setting, ...]
    grid_seconds: float
    tuner_seconds: float
    failed: tuple[tuple[Cell, str], ...]

    @property
    def share(self) -> float:
        return self.tuner_seconds / self.grid_seconds

    @property
    def lost(self) -> Interval:
        return self.lost_by(self.evidence.decides)

    @property
    def best(self) -> Setting:
        key = self.evidence.decides.best([each.key for each in self.rivals])
        return next(each for each in self.rivals if each.key == key)

    def lost_by(self, figures: Blocked) -> Interval:
        return figures.lost(self.chosen.key, [each.key for each in self.rivals])

    def objective(self, figures: Blocked, setting: Setting) -> float:
        """In the mean of the rounds."""
        effect = float(figures.effects[figures.settings.index(setting.key)])
        return exp(-effect if self.goal.objective.more_is_better else effect)

    @property
    def verdict(self) -> Verdict:
        return verdict_of(self.lost)


def verdict_of(lost: Interval) -> Verdict:
    if lost.low is None or lost.high is None:
        return Verdict.OPEN
    if lost.high <= MOST_REGRET:
        return Verdict.MET
    return Verdict.MISSED if lost.low > MOST_REGRET else Verdict.OPEN


@dataclass(frozen=True, slots=True)
class GridRun:
    """One live run of one cell, and where its event log is."""

    cell: Cell
    round: int
    observed: Observations
    log: Path


@dataclass(frozen=True, slots=True)
class _Measured:
    """`failed` has a reason for each cell of which some run failed; `seconds` are all runs' that went well."""

    runs: tuple[GridRun, ...]
    failed: tuple[tuple[Cell, str], ...]
    seconds: float


def measure(
    what: Search, live: Live, folder: Path, *, rounds: int, calibration_seconds: float, watch: Watch, progress: Progress
) -> Regret:
    """Raises EvenflowError if the chosen cell, or none at all, could be measured. Goes on with what `folder` has."""
    for name in ("grid", "tuner"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    facts = {"search": str((what.space, what.goal, what.load, what.cost)), "rounds": str(rounds)}
    journal = Journal(folder / "grid" / "journal.jsonl", facts)
    task = Task(what.load, what.cost, what.goal)
    simulated = run_grid(
        what.cells, task, journal, folder / "grid", stage=0, jobs=what.jobs, progress=lambda done, total: None
    )
    groups = (*equal_cells(simulated.runs.items()), *((cell,) for cell in simulated.failed))
    for group in groups:
        if len(group) > 1:
            progress(f"equal, as simulated: {'; '.join(map(what.space.label, group))}")
    measured = _measure_grid(what, live, folder / "grid", journal, rounds, progress)
    found = search(what, Journal(folder / "tuner" / "journal.jsonl", facts), folder / "tuner", live, watch)
    return _regret(what, groups, measured, found, calibration_seconds)


def _regret(
    what: Search, groups: Sequence[tuple[Cell, ...]], measured: _Measured, found: Found, calibration_seconds: float
) -> Regret:
    """A setting in which some run came to no objective at all (requests failed) is not compared."""
    settings, of_setting = list[Setting](), dict[Cell, str]()
    for group in groups:
        mine = [run.observed for run in measured.runs if run.cell in group]
        if not mine or not all(abs(log_loss(run, what.goal)) < inf for run in mine):
            continue
        whole = combined(mine)
        ratios = [value(whole, limit.statistic) / limit.seconds for limit in what.goal.limits]
        settings.append(Setting(group, len(mine), max(ratios, default=0.0)))
        of_setting |= dict.fromkeys(group, group[0].key)
    chosen = next((each for each in settings if found.choice.cell in each.cells), None)
    if chosen is None:
        why = dict(measured.failed).get(found.choice.cell, "some of its requests failed, or none of its runs went well")
        raise EvenflowError(f"the chosen cell could not be measured: {why}")
    rivals = [each for each in settings if each.worst_ratio <= 1.0]
    rivals = rivals or [min(settings, key=lambda each: each.worst_ratio)]
    compared = [run for run in measured.runs if run.cell in of_setting]
    losses = [Run(of_setting[run.cell], run.round, log_loss(run.observed, what.goal)) for run in compared]
    paces = [pace_of(run.log, what.cost) for run in compared]
    return Regret(
        what.goal,
        tuple(settings),
        evidence_of(losses, paces, _expected(compared, paces, what)),
        noise_of(losses),
        found,
        chosen,
        tuple(rivals),
        measured.seconds,
        found.live_seconds + found.simulated_seconds + calibration_seconds,
        measured.failed,
    )


def _expected(runs: Sequence[GridRun], paces: Sequence[float | None], what: Search) -> list[float] | None:
    known = [(what.cells[run.cell], pace) for run, pace in zip(runs, paces, strict=True) if pace is not None]
    return expected(known, what.cost, what.load, what.goal) if len(known) == len(runs) else None


def _measure_grid(
    what: Search, live: Live, folder: Path, journal: Journal, rounds: int, progress: Progress
) -> _Measured:
    """A run that failed is noted; the cell's other rounds count."""
    (folder / "live").mkdir(exist_ok=True)
    runs, failed = list[GridRun](), dict[Cell, str]()
    order = [(number, cell) for number in range(rounds) for cell in turns(list(what.cells), number, what.load.seed)]
    for done, (number, cell) in enumerate(order):
        took = [entry.seconds for entry in journal.entries if isinstance(entry, Ran)]
        left = f", about {format_seconds(sum(took) / len(took) * (len(order) - done))} to go" if took else ""
        progress(f"grid: run {done + 1} of {len(order)}{left}: {what.space.label(cell)}")
        outcome = run_once(cell, 0, number, what, journal, folder, live)
        if isinstance(outcome, str):
            failed[cell] = outcome
            continue
        entry = journal.ran(0)[number, cell.key]
        assert isinstance(entry, Ran)
        runs.append(GridRun(cell, number, outcome, folder / entry.log))
    if not runs:
        raise EvenflowError(f"no cell of the grid ran; the first failed with: {next(iter(failed.values()))}")
    seconds = sum(entry.seconds for entry in journal.entries if isinstance(entry, Ran))
    return _Measured(tuple(runs), tuple(failed.items()), seconds)
