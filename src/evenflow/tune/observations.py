"""What tuning keeps of a run: enough to resample any figure of it, little enough to keep hundreds of runs.

Requests in order of arrival are cut into at most 256 *cells of time*, the same ones in every run of the same load. They
are what is resampled (confidence.py), so a value needs to know its cell, not its request. Gaps between tokens, of
which a run has millions, are counted per cell on levels 1 % apart.

    key                     one value for each
    tokens, done, met       request: output tokens, its completion, and a kept bound, that came inside the window
    ttft, tpot, e2e, itl    request (itl: gap) that was intended inside the window; class:ttft for one class
"""

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from zipfile import BadZipFile, ZipFile

import numpy as np
from numpy.typing import NDArray

from evenflow.core.errors import EvenflowError
from evenflow.files.bounded_file import read_at_most
from evenflow.replay.bootstrap import Floats, Sample
from evenflow.replay.measure import HEADLINE, Metric, window_of
from evenflow.replay.record import Record
from evenflow.replay.result import Result
from evenflow.replay.slo import Objectives
from evenflow.tune.objective import Goal

MAX_TIME_CELLS = 256
_LEVEL = np.log(1.01)
_MAX_FILE_BYTES = 1 << 28
_MAX_UNPACKED_BYTES = 1 << 30

TOKENS, DONE, MET = "tokens", "done", "met"


class ObservationsError(EvenflowError):
    """A file of observations cannot be read or written; the message names it."""


@dataclass(frozen=True, slots=True)
class Observations:
    """`seconds` is the length of the measured window, `num_planned` and `num_failed` are of the whole run."""

    seconds: float
    num_time_cells: int
    num_planned: int
    num_failed: int
    samples: Mapping[str, Sample]

    def per_second(self, key: str) -> float:
        return float(self.samples[key].values.sum()) / self.seconds


def observe(result: Result, goal: Goal) -> Observations:
    """With a warm-up of its own the window runs from there to the last send that was intended: no run can move it."""
    records = sorted(result.records, key=lambda record: record.intended)
    assert records, "a run has requests"
    window = window_of(records, result.warm_up_seconds)
    begin, end = window.start, window.end
    if result.warm_up_seconds is not None and begin < records[-1].intended:
        begin, end = result.warm_up_seconds, records[-1].intended
    num = min(len(records), MAX_TIME_CELLS)
    cell_of = np.arange(len(records)) * num // len(records)
    inside = [(record, int(cell)) for record, cell in zip(records, cell_of, strict=True) if begin <= record.intended]
    bounds = goal.objective.bounds
    samples = {
        TOKENS: Sample(np.array([_tokens_within(record, begin, end) for record in records]), cell_of),
        DONE: Sample(np.array([_done_within(record, begin, end) for record in records]), cell_of),
    }
    if bounds is not None:
        samples[MET] = _met(inside, bounds)
    for whom in {None, *(limit.statistic.service_class for limit in goal.limits), *_class_of(goal)}:
        members = [each for each in inside if whom is None or each[0].service_class == whom]
        for metric in HEADLINE:
            samples[sample_key(whom, metric.name)] = _latencies(metric, members)
    failed = sum(not record.ok for record in records)
    return Observations(end - begin, num, len(records), failed, samples)


def _class_of(goal: Goal) -> Iterable[str | None]:
    statistic = goal.objective.statistic
    return () if statistic is None else (statistic.service_class,)


def sample_key(service_class: str | None, metric: str) -> str:
    return metric if service_class is None else f"{service_class}:{metric}"


def _tokens_within(record: Record, begin: float, end: float) -> float:
    if not record.ok:
        return 0.0
    times = np.array(record.chunk_times)
    return float(np.array(record.chunk_tokens)[(times >= begin) & (times <= end)].sum())


def _done_within(record: Record, begin: float, end: float) -> float:
    return float(record.ok and record.finished is not None and begin <= record.finished <= end)


def _met(inside: Sequence[tuple[Record, int]], bounds: Objectives) -> Sample:
    return Sample(np.array([float(bounds.met(record)) for record, _ in inside]), np.array([cell for _, cell in inside]))


def _latencies(metric: Metric, members: Sequence[tuple[Record, int]]) -> Sample:
    """One infinite value for a request that failed."""
    if metric.name == "itl":
        return _gaps(members, metric)
    values: list[float] = []
    cells: list[int] = []
    for record, cell in members:
        found = [float("inf")] if not record.ok else metric.observations(record).tolist()
        values += found
        cells += [cell] * len(found)
    return Sample(np.array(values, dtype=np.float64), np.array(cells, dtype=np.int64))


def _gaps(members: Sequence[tuple[Record, int]], metric: Metric) -> Sample:
    """Counted by cell and level. A gap of nothing (tokens that came together) is on the lowest level, a microsecond."""
    parts = [(metric.observations(record), cell) for record, cell in members if record.ok]
    failed = [cell for record, cell in members if not record.ok]
    values = np.concatenate([part for part, _ in parts]) if parts else np.zeros(0)
    cells = np.repeat([cell for _, cell in parts], [len(part) for part, _ in parts]).astype(np.int64)
    levels = np.round(np.log(np.maximum(values, 1e-6) / 1e-6) / _LEVEL).astype(np.int64)
    codes, counts = np.unique(cells << 16 | levels, return_counts=True)
    found = 1e-6 * np.exp((codes & 0xFFFF) * _LEVEL)
    return Sample(
        np.concatenate([found, np.full(len(failed), np.inf)]),
        np.concatenate([codes >> 16, np.array(failed, dtype=np.int64)]),
        np.concatenate([counts.astype(np.float64), np.ones(len(failed))]),
    )


def write_observations(observations: Observations, path: Path) -> None:
    arrays: dict[str, NDArray[np.float64] | NDArray[np.int64] | NDArray[np.float32]] = {
        "head": np.array(
            [
                observations.seconds,
                observations.num_time_cells,
                observations.num_planned,
                observations.num_failed,
            ]
        )
    }
    for key, sample in observations.samples.items():
        arrays[f"{key}/values"] = sample.values
        arrays[f"{key}/blocks"] = sample.blocks
        if sample.weights is not None:
            arrays[f"{key}/weights"] = sample.weights
    try:
        with path.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)
    except OSError as error:
        raise ObservationsError(f"cannot write {path}: {error.strerror}") from error


def read_observations(path: Path) -> Observations:
    """Raises ObservationsError for whatever is wrong with the file."""
    try:
        data = read_at_most(path, _MAX_FILE_BYTES)
        if data is None:
            raise ObservationsError(f"{path} is larger than {_MAX_FILE_BYTES} bytes; no run's observations are")
        with ZipFile(BytesIO(data)) as packed:
            if sum(each.file_size for each in packed.infolist()) > _MAX_UNPACKED_BYTES:
                raise ObservationsError(f"{path} unpacks to more than {_MAX_UNPACKED_BYTES} bytes; no run's do")
        with np.load(BytesIO(data), allow_pickle=False) as file:
            seconds, num_cells, planned, failed = file["head"].tolist()
            samples = {}
            for name in file.files:
                key, slash, part = name.rpartition("/")
                if slash and part == "values":
                    weights = file[f"{key}/weights"] if f"{key}/weights" in file.files else None
                    samples[key] = _checked(Sample(file[name], file[f"{key}/blocks"], weights), int(num_cells))
    except (OSError, ValueError, KeyError, EOFError, TypeError, BadZipFile, zlib.error) as error:
        raise ObservationsError(f"{path} does not hold the observations of a run: {error}") from error
    return Observations(seconds, int(num_cells), int(planned), int(failed), samples)


def _checked(sample: Sample, num_cells: int) -> Sample:
    parts: list[Floats | NDArray[np.int64]] = [sample.values, sample.blocks]
    parts += [] if sample.weights is None else [sample.weights]
    if any(part.ndim != 1 or len(part) != len(sample.values) or part.dtype.kind not in "fi" for part in parts):
        raise ValueError("arrays of different lengths")
    if len(sample.blocks) and not (sample.blocks.min() >= 0 and sample.blocks.max() < num_cells):
        raise ValueError("a cell of time that there is not")
    return sample
