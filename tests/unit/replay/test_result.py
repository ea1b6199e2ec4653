"""Result files, and comparing them."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evenflow.core.errors import ConfigError
from evenflow.replay.assess import assess
from evenflow.replay.bootstrap import Sample, blocks_of, difference, resampled_mean, resampled_quantile, value_of
from evenflow.replay.compare import compare
from evenflow.replay.request import Reason, TokenCounts
from evenflow.replay.result import ResultError, read_result, stem_of, thinned, write_result
from records import failed, noisy_run, record, result, unsent

RUN = result(
    record(0, 0.25, ttft=0.125, gaps=(0.5, 0.25), tenant="t", service_class="c", cached_tokens=3),
    record(1, 0.5, chunk_times=(1.0, 1.5), chunk_tokens=(2, 3), finished=1.5, token_counts=TokenCounts.SPREAD),
    failed(2, 0.75, Reason.LOST, "gone"),
    unsent(3, 1.0),
    slo="ttft=1s",
    notes=("a note",),
    gave_up="the server is gone",
)


@pytest.mark.parametrize("name", ["r.json", "r.json.gz"])
def test_a_result_comes_back_from_its_file(name: str, tmp_path: Path) -> None:
    write_result(RUN, {"anything": 1}, tmp_path / name)
    assert read_result(tmp_path / name) == RUN


def test_the_file_can_be_read_without_evenflow(tmp_path: Path) -> None:
    assessed = assess(RUN)
    write_result(RUN, {"measured": assessed.measured, "verdict": assessed.verdict}, tmp_path / "r.json")
    file = json.loads((tmp_path / "r.json").read_text())
    rows = [dict(zip(file["request_fields"], row, strict=True)) for row in file["requests"]]
    assert rows[0]["first_chunk"] == 0.375
    assert rows[0]["chunk_gaps_us"] == [500_000, 250_000]
    assert rows[2]["reason"] == "connection lost"
    assert file["summary"]["measured"]["rows"][0]["name"] == "ttft"
    assert file["summary"]["verdict"]["faults"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "is not a result file"),
        (b"[]", "is not a result file"),
        (b"\xff", "is not a result file"),
        (b"{}", "is not the result of a replay"),
        (b'{"kind": "evenflow-replay", "schema_version": 99}', "has schema version 99; this evenflow reads 1"),
        (b'{"kind": "evenflow-replay", "schema_version": 1}', "is not a result file: Object missing required field"),
    ],
)
def test_what_is_no_result_is_named(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "r.json").write_bytes(content)
    with pytest.raises(ResultError) as caught:
        read_result(tmp_path / "r.json")
    assert message in str(caught.value)
    assert "r.json" in str(caught.value)


def test_files_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    with pytest.raises(ResultError, match=r"cannot read .*missing\.json"):
        read_result(tmp_path / "missing.json")
    (tmp_path / "r.json.gz").write_bytes(b"\x1f\x8b\x08broken")
    with pytest.raises(ResultError, match=r"cannot read .*r\.json\.gz"):
        read_result(tmp_path / "r.json.gz")
    with pytest.raises(ResultError, match="cannot write"):
        write_result(RUN, {}, tmp_path / "no" / "r.json")


def test_a_spoilt_row_is_named(tmp_path: Path) -> None:
    write_result(RUN, {}, tmp_path / "r.json")
    file = json.loads((tmp_path / "r.json").read_text())
    file["requests"][1][-1] = [1, 2, 3]
    (tmp_path / "r.json").write_text(json.dumps(file))
    with pytest.raises(ResultError, match="r1 has 2 chunks but 3 token counts"):
        read_result(tmp_path / "r.json")


def test_lags_are_thinned_by_rank() -> None:
    assert thinned([3.0, 1.0, 2.0]) == (1.0, 2.0, 3.0)
    many = thinned([float(i) for i in range(10_000)])
    assert (len(many), many[0], many[-1]) == (200, 0.0, 9999.0)
    assert np.percentile(many, 99) == pytest.approx(9899, rel=0.01)


# ---- comparing


def test_a_slower_run_is_called_slower() -> None:
    comparison = compare(noisy_run(1, 400, name="a"), noisy_run(2, 400, slower=1.5, name="b"))
    told = {row.title: row for row in comparison.rows if row.differs}
    assert {"TTFT mean", "ITL mean", "ITL P50", "E2E mean"} <= told.keys()
    assert all(not row.better for row in told.values())
    itl = told["ITL mean"]
    assert itl.interval.low is not None
    assert itl.interval.high is not None
    assert itl.interval.low < itl.interval.estimate < itl.interval.high
    assert itl.relative == pytest.approx(0.5, abs=0.1)
    assert comparison.sentence.startswith("b against a: TTFT mean +")


def test_two_runs_of_the_same_differ_in_nothing_that_the_data_carry() -> None:
    comparison = compare(noisy_run(1, 400, name="a"), noisy_run(2, 400, name="b"))
    assert comparison.sentence == "b against a: no difference that the data carry"
    assert (comparison.num_pairs, comparison.num_unpaired) == (400, 0)


@pytest.mark.slow
def test_chance_is_called_a_difference_about_as_often_as_it_says() -> None:
    """5 % of comparisons, over all their rows together; 40 comparisons leave room for chance."""
    alarms = sum(
        any(row.differs for row in compare(noisy_run(2 * k, 400), noisy_run(2 * k + 1, 400)).rows) for k in range(40)
    )
    assert alarms <= 6


def test_a_run_against_itself_has_no_difference_at_all() -> None:
    run = noisy_run(1, 100)
    assert all(row.interval.estimate == 0.0 and not row.differs for row in compare(run, run).rows)


def test_only_requests_that_went_well_in_both_are_paired() -> None:
    base = noisy_run(1, 60, name="a")
    records = list(base.records)
    records[3], records[4] = failed(3, 0.6), unsent(4, 0.8)
    other = replace(base, name="b", records=tuple(records[:50]))
    comparison = compare(base, other)
    assert comparison.num_pairs == 48
    assert comparison.num_unpaired == 12


def test_too_few_pairs_are_refused() -> None:
    with pytest.raises(ConfigError, match="have 19 requests in common"):
        compare(noisy_run(1, 19, name="a"), noisy_run(2, 40, name="b"))


def test_shares_of_objectives_are_compared() -> None:
    base = noisy_run(1, 400, name="a", slo="ttft=110ms")
    rows = {row.title: row for row in compare(base, noisy_run(2, 400, slower=2.0, name="b")).rows}
    row = rows["meet their SLO"]
    assert row.unit == "%"
    assert row.differs
    assert not row.better


def test_unlike_loads_are_remarked() -> None:
    base = noisy_run(1, 40, name="a")
    remarks = compare(base, replace(base, name="b", load={**base.load, "trace": "u"})).remarks
    assert "trace differs: t | u" in remarks
    assert any("the same content" in remark for remark in remarks)


def test_each_length_group_is_compared() -> None:
    groups = compare(noisy_run(1, 300), noisy_run(2, 300)).groups
    assert [name for name, _, _ in groups] == ["1-128 in, 1-32 out", "1-128 in, 33-128 out"]
    assert sum(num for _, num, _ in groups) == 300


# ---- the bootstrap itself


def sample(values: "np.typing.ArrayLike") -> Sample:
    found = np.asarray(values, dtype=np.float64)
    return Sample(found, np.arange(len(found)) % 20)


def test_statistics_without_resampling_are_the_plain_ones() -> None:
    values = np.random.default_rng(0).exponential(size=5000)
    blocks = blocks_of([np.zeros(5000)])
    whole = Sample(values, blocks.of_request)
    assert value_of(whole, resampled_mean, blocks) == pytest.approx(values.mean())
    for percent in (1, 50, 95, 99):
        found = value_of(whole, lambda s, d, p=percent: resampled_quantile(s, d, p), blocks)  # type: ignore[misc]
        assert found == pytest.approx(np.quantile(values, percent / 100, method="inverted_cdf"), rel=0.01)


def test_an_interval_of_a_mean_is_as_wide_as_theory_has_it() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=4000), rng.normal(size=4000)
    blocks = blocks_of([b - a])
    draws = blocks.draws(1)
    found = difference(Sample(a, blocks.of_request), Sample(b, blocks.of_request), resampled_mean, blocks, draws, 0.95)
    assert found.low is not None
    assert found.high is not None
    assert found.high - found.low == pytest.approx(2 * 1.96 * (2 / 4000) ** 0.5, rel=0.12)


def test_blocks_are_as_long_as_neighbours_are_alike() -> None:
    rng = np.random.default_rng(0)
    noise = rng.normal(size=2000)
    drift = np.cumsum(rng.normal(size=2000))
    assert blocks_of([noise]).num > 100
    assert blocks_of([drift]).num <= 20
    assert blocks_of([noise, drift]).num <= 20, "alike in any respect is alike"


def test_few_blocks_carry_no_interval() -> None:
    blocks = blocks_of([np.zeros(4)])
    found = difference(
        sample([1.0] * 4), sample([2.0] * 4), resampled_mean, blocks_of([np.zeros(4)]), blocks.draws(1), 0.95
    )
    assert (found.estimate, found.low, found.excludes_zero) == (1.0, None, False)


@pytest.mark.parametrize(
    ("given", "stem"),
    [("a/x", "a/x"), ("a/x.json", "a/x"), ("x.json.gz", "x"), ("x.html", "x"), ("x.2", "x.2"), (".json", ".json")],
)
def test_a_result_is_named_after_what_was_given_with_or_without_a_suffix(given: str, stem: str) -> None:
    assert stem_of(Path(given)) == Path(stem)


Change = Callable[[dict[str, Any]], object]  # Any: a file as JSON


def first_row(field: str, value: object) -> Change:
    def change(file: dict[str, Any]) -> None:
        file["requests"][0][file["request_fields"].index(field)] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (first_row("intended", -1e9), "Expected `float` >= -1.0 - at `$.requests[0][1]`"),
        (first_row("finished", 1e300), "Expected `float` <= 1000000000"),
        (first_row("num_prompt_tokens", 0), "Expected `int` >= 1"),
        (first_row("num_output_tokens", -1), "Expected `int` >= 0"),
        (first_row("chunk_gaps_us", [-1, 1]), "Expected `int` >= 0"),
        (first_row("first_chunk", None), "request r0 has no chunk, and no reason why it failed"),
        (first_row("finished", None), "request r0 has no end, and no reason why it failed"),
        (first_row("first_chunk", 0.0), "request r0 was sent at 0.25 s, had chunks from 0 to 0.75 s"),
        (first_row("finished", 0.5), "and ended at 0.5 s; these must be in order"),
        (first_row("request_id", "r1"), "request r1 is there twice"),
        (lambda file: file["request_fields"].reverse(), "request_fields must be request_id, intended"),
        (lambda file: file["requests"].clear(), "it has no requests"),
        (lambda file: file.update(warm_up_seconds=-1.0), "Expected `float` >= 0.0"),
    ],
)
def test_a_result_that_no_run_had_is_refused(change: Change, message: str, tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    write_result(RUN, {}, path)
    file = json.loads(path.read_text())
    change(file)
    path.write_text(json.dumps(file))
    with pytest.raises(ResultError) as caught:
        read_result(path)
    assert str(caught.value).startswith(f"{path} is not a result file: ")
    assert message in str(caught.value)


def test_a_result_without_a_bottom_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_bytes(b'{"kind":"evenflow-replay","x":' + b"[" * 100_000)
    with pytest.raises(ResultError, match="maximum recursion depth"):
        read_result(path)


def test_what_a_reader_must_know_is_a_caution_from_the_file_too(tmp_path: Path) -> None:
    write_result(replace(RUN, cautions=("most of it is a guess",)), {}, tmp_path / "r.json")
    assert assess(read_result(tmp_path / "r.json")).verdict.cautions[-1] == "most of it is a guess"


def test_only_runs_whose_content_has_a_seed_can_have_sent_the_same() -> None:
    """A simulation has none: it begins with an empty cache each time."""
    runs = [noisy_run(seed, 40, name=str(seed)) for seed in (1, 2)]
    simulated = [replace(run, load={"trace": "t"}) for run in runs]
    sent = [replace(run, load={"trace": "t", "content seed": "7"}) for run in runs]
    assert not any("same content" in remark for remark in compare(*simulated).remarks)
    assert any("same content" in remark for remark in compare(*sent).remarks)
