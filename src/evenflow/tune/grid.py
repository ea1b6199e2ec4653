"""The whole grid, simulated: every cell the same requests with the same random numbers, in several processes at once.

What a cell came to is written to a file before the journal says so; a search that was stopped goes on with the cells
that are not in the journal. A cell whose simulation fails is noted and passed over.
"""

import multiprocessing
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path

from evenflow.core.errors import ConfigError, EvenflowError
from evenflow.replay.request import PlannedRequest
from evenflow.simulate.config import SimulationConfig
from evenflow.simulate.cost import StepCost
from evenflow.simulate.run import simulate
from evenflow.tune.journal import Failed, Journal, Simulated
from evenflow.tune.objective import Goal
from evenflow.tune.observations import Observations, observe, read_observations, write_observations
from evenflow.tune.space import Cell

Progress = Callable[[int, int], None]
"""Told how many cells are done, and of how many."""


@dataclass(frozen=True, slots=True)
class Load:
    """The requests that every configuration meets. `warm_up_seconds` are not measured."""

    plans: tuple[PlannedRequest, ...]
    warm_up_seconds: float
    seed: int


@dataclass(frozen=True, slots=True)
class Task:
    """What a worker needs besides the cell."""

    load: Load
    cost: StepCost
    goal: Goal


@dataclass(frozen=True, slots=True)
class Grid:
    """`entries` says of each cell in `runs` how it was simulated, `failed` why another has no run."""

    runs: Mapping[Cell, Observations]
    entries: Mapping[Cell, Simulated]
    failed: Mapping[Cell, str]

    @property
    def outside(self) -> dict[Cell, float]:
        """The share of steps that were beyond what the cost model has seen, where there were any."""
        return {cell: entry.num_outside / entry.num_steps for cell, entry in self.entries.items() if entry.num_outside}


def run_grid(
    cells: Mapping[Cell, SimulationConfig],
    task: Task,
    journal: Journal,
    folder: Path,
    *,
    stage: int,
    jobs: int,
    progress: Progress,
) -> Grid:
    """Raises ConfigError if no cell could be simulated."""
    numbers = {cell: number for number, cell in enumerate(cells)}
    known = journal.simulated(stage)
    left = [cell for cell in cells if cell.key not in known]
    progress(len(cells) - len(left), len(cells))
    files = {cell: f"cells/{stage}-{numbers[cell]:04d}.npz" for cell in cells}
    try:
        (folder / "cells").mkdir(exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot make the folder {folder / 'cells'}: {error.strerror}") from error
    work = [(cell.key, cells[cell], folder / files[cell]) for cell in left]
    by_key = {cell.key: cell for cell in cells}
    for done, (key, outcome) in enumerate(_outcomes(work, task, jobs), start=len(cells) - len(left) + 1):
        if isinstance(outcome, _Done):
            journal.add(Simulated(stage, key, files[by_key[key]], outcome.seconds, outcome.steps, outcome.outside))
        else:
            journal.add(Failed(stage, key, outcome.why, outcome.seconds))
        progress(done, len(cells))
    return _collect(cells, journal, folder, stage)


def _collect(cells: Mapping[Cell, SimulationConfig], journal: Journal, folder: Path, stage: int) -> Grid:
    known = journal.simulated(stage)
    runs, entries, failed = {}, {}, {}
    for cell in cells:
        match known[cell.key]:
            case Simulated() as entry:
                runs[cell] = read_observations(folder / entry.file)
                entries[cell] = entry
            case Failed(why=why):
                failed[cell] = why
    if not runs:
        raise ConfigError(
            f"no cell of the grid could be simulated; the first failed with: {next(iter(failed.values()))}"
        )
    return Grid(runs, entries, failed)


@dataclass(frozen=True, slots=True)
class _Done:
    seconds: float
    steps: int
    outside: int


@dataclass(frozen=True, slots=True)
class _Broken:
    seconds: float
    why: str


_Work = tuple[str, SimulationConfig, Path]


def _outcomes(work: Sequence[_Work], task: Task, jobs: int) -> Iterator[tuple[str, _Done | _Broken]]:
    if jobs <= 1 or len(work) <= 1:
        for key, config, path in work:
            yield key, _simulate(task, config, path)
        return
    # Spawned, not forked: this process may have threads.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(jobs, len(work)), context, _prepare, (task,)) as pool:
        futures: dict[Future[_Done | _Broken], str] = {
            pool.submit(_in_worker, config, path): key for key, config, path in work
        }
        try:
            for future in as_completed(futures):
                try:
                    yield futures[future], future.result()
                except BrokenProcessPool as error:
                    raise EvenflowError(
                        "a simulating process died, perhaps for lack of memory; try fewer --jobs"
                    ) from error
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


_task: Task | None = None


def _prepare(task: Task) -> None:
    global _task  # a worker process has one task, handed over once rather than with every cell
    _task = task


def _in_worker(config: SimulationConfig, path: Path) -> _Done | _Broken:
    assert _task is not None
    return _simulate(_task, config, path)


def _simulate(task: Task, config: SimulationConfig, path: Path) -> _Done | _Broken:
    began = time.perf_counter()
    try:
        done = simulate(
            task.load.plans, task.cost, config, seed=task.load.seed, warm_up_seconds=task.load.warm_up_seconds
        )
        write_observations(observe(done.result, task.goal), path)
    except EvenflowError as error:
        return _Broken(time.perf_counter() - began, str(error))
    return _Done(time.perf_counter() - began, done.num_steps, done.num_steps_outside_hull)
