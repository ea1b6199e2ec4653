"""What tuning keeps of a run gives the same figures as the run itself."""

from dataclasses import replace
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
import pytest

from evenflow.replay.measure import measure
from evenflow.tune import observations
from evenflow.tune.effects import completed, throughput, value
from evenflow.tune.objective import Statistic, parse_goal
from evenflow.tune.observations import ObservationsError, observe, read_observations, write_observations
from records import failed, record, result
from tuning_runs import GOAL, noisy

RECORDS = [record(i, i * 0.1, ttft=0.1 + 0.001 * (i % 50), gaps=(0.01 + 0.0001 * (i % 9),) * 5) for i in range(600)]


def test_figures_are_those_of_the_result() -> None:
    measured = measure(RECORDS, None, 6.0)
    kept = observe(result(*RECORDS, warm_up_seconds=6.0), GOAL)
    ttft, itl = measured.rows[:2]
    assert throughput(kept) == pytest.approx(measured.rates.output_tokens)
    assert completed(kept) == pytest.approx(measured.rates.completed)
    assert value(kept, Statistic("ttft", 95.0)) == pytest.approx(ttft.tail.p95, rel=0.01)
    assert value(kept, Statistic("ttft", None)) == pytest.approx(ttft.mean)
    assert value(kept, Statistic("itl", 99.0)) == pytest.approx(itl.tail.p99, rel=0.01), "levels are 1 % apart"


def test_a_failed_request_is_infinitely_late() -> None:
    kept = observe(result(*RECORDS[:-40], *(failed(i, i * 0.1) for i in range(560, 600)), warm_up_seconds=0.0), GOAL)
    assert kept.num_failed == 40
    assert value(kept, Statistic("ttft", 50.0)) < 1.0
    assert value(kept, Statistic("ttft", 95.0)) == float("inf")
    assert value(kept, Statistic("itl", 99.0)) == float("inf")


def test_a_limit_on_a_class_is_of_that_class() -> None:
    records = [record(i, i * 0.1, ttft=0.5 if i % 2 else 0.1, service_class="ab"[i % 2]) for i in range(200)]
    kept = observe(result(*records, warm_up_seconds=0.0), parse_goal("throughput", "b:ttft_p50=1s"))
    assert value(kept, Statistic("ttft", 50.0, "b")) == pytest.approx(0.5)
    assert value(kept, Statistic("ttft", 5.0)) == pytest.approx(0.1)


def test_goodput_counts_requests_that_keep_every_bound() -> None:
    goal = parse_goal("goodput:ttft=125ms", None)
    kept = observe(result(*RECORDS, warm_up_seconds=0.0), goal)
    assert kept.samples["met"].values.mean() == pytest.approx(26 / 50)


def test_a_file_brings_them_back(tmp_path: Path) -> None:
    kept = noisy(0.1, 1)
    write_observations(kept, tmp_path / "run.npz")
    back = read_observations(tmp_path / "run.npz")
    assert (back.seconds, back.num_time_cells, back.num_planned) == (kept.seconds, kept.num_time_cells, 400)
    for key, sample in kept.samples.items():
        assert np.array_equal(back.samples[key].values, sample.values)
        assert np.array_equal(back.samples[key].blocks, sample.blocks)


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.npz"
    path.write_bytes(b"PK\x03\x04 not really")
    with pytest.raises(ObservationsError, match="does not hold"):
        read_observations(path)
    with path.open("wb") as file:
        np.savez(file, np.ones(3))
    with pytest.raises(ObservationsError, match="does not hold"):
        read_observations(path)
    with pytest.raises(ObservationsError):
        read_observations(tmp_path / "none.npz")


def test_a_cell_of_time_that_there_is_not_is_refused(tmp_path: Path) -> None:
    kept = noisy(0.1, 1)
    wrong = replace(kept, num_time_cells=kept.num_time_cells - 1)
    write_observations(wrong, tmp_path / "run.npz")
    with pytest.raises(ObservationsError, match="a cell of time"):
        read_observations(tmp_path / "run.npz")


def test_a_packed_file_is_not_unpacked_without_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.npz"
    monkeypatch.setattr(observations, "_MAX_UNPACKED_BYTES", 1000)
    with ZipFile(path, "w", ZIP_DEFLATED) as packed:
        packed.writestr("head.npy", bytes(1001))
    with pytest.raises(ObservationsError, match="unpacks to more than"):
        read_observations(path)
