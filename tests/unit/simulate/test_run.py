"""Simulations: what they give, of one replica and of several, and what is refused."""

from dataclasses import replace
from pathlib import Path

import pytest

from evenflow.core.errors import ConfigError
from evenflow.core.events import Event, Finished, StepRecord
from evenflow.observe.log import EventLogWriter, read_log
from evenflow.replay.assess import assess
from evenflow.replay.compare import compare
from evenflow.replay.request import Reason
from evenflow.replay.result import read_result, write_result
from evenflow.report.replay_page import replay_page
from evenflow.simulate.config import SimulationConfig, with_settings
from evenflow.simulate.cost import Bounds, Identity, Kind, Regime, Spread, StepCost
from evenflow.simulate.run import simulate
from evenflow.simulate.validate import validate
from evenflow.workload.trace import PrefixBlocks, TraceRequest

COST = StepCost(
    Identity(Kind.ROOFLINE, "a machine", "a model", "0", "ten milliseconds and a bit"),
    weight_seconds=0.010,
    token_seconds=1e-5,
    sharpness=64.0,
    kv_tokens=4096,
)
PLAIN = SimulationConfig(policy="vllm", block_size=16, max_num_seqs=8, max_num_batched_tokens=256)


def row(time: float, prompt: int, output: int, **more: object) -> TraceRequest:
    return TraceRequest(time, prompt, output, **more)  # type: ignore[arg-type]  # names and values of its fields


def test_one_request_takes_a_step_for_its_prompt_and_one_for_each_further_token() -> None:
    done = simulate([row(0.0, 100, 5)], COST, PLAIN)
    (record,) = done.result.records
    assert done.num_steps == 5
    assert record.ttft == pytest.approx(0.010, abs=1e-4)
    assert list(record.chunk_times) == pytest.approx([0.010, 0.020, 0.030, 0.040, 0.050], abs=1e-4)
    assert done.machine_seconds == pytest.approx(0.05, abs=1e-3)


def test_a_result_is_that_of_a_replay(tmp_path: Path) -> None:
    rows = [row(0.05 * index, 50, 10 + index) for index in range(40)]
    done = simulate(rows, COST, PLAIN, slo="ttft=1s")
    write_result(done.result, {}, tmp_path / "a.json")
    again = read_result(tmp_path / "a.json")
    for was, now in zip(done.result.records, again.records, strict=True):
        assert list(now.chunk_times) == pytest.approx(list(was.chunk_times), abs=1e-4)
    assessed = assess(done.result)
    assert assessed.verdict.valid
    assert assessed.measured.share_meeting_slo == 1.0
    assert "simulated" in replay_page(assessed)
    assert compare(done.result, again).rows


def test_a_simulation_beside_a_measured_run_is_said_to_be_one() -> None:
    rows = [row(0.05 * index, 50, 10 + index) for index in range(40)]
    one = replace(simulate(rows, COST, PLAIN).result, name="sim")
    live = replace(one, name="live", target={"server": "version 1"}, load={**one.load, "pacing": "open loop"})
    for pair in ((one, live), (live, one)):
        remarks = compare(*pair).remarks
        assert remarks[0].startswith("sim is simulated and live was measured")
        assert not any(remark.startswith("pacing differs") for remark in remarks)
    assert not any("was measured" in remark for remark in compare(one, one).remarks)


def test_a_simulated_log_reads_as_a_live_one(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    with EventLogWriter(path) as log:
        done = simulate(
            [row(0.0, 30, 4), row(0.01, 30, 9)], COST, PLAIN, sink=lambda replica, events: log.write(events)
        )
    with read_log(path) as events:
        found: list[Event] = list(events)
    assert sum(isinstance(event, StepRecord) for event in found) == done.num_steps
    assert sum(isinstance(event, Finished) for event in found) == 2


def test_a_simulation_of_its_own_log_is_the_same_again() -> None:
    rows = [row(0.02 * index, 40, 5 + index % 7) for index in range(60)]
    first = simulate(rows, COST, PLAIN, keep_events=True)
    found = validate(first.events, COST)
    assert found.errors
    assert all(abs(error.share) < 1e-3 for error in found.errors)
    assert found.steps.mape == pytest.approx(0.0, abs=1e-9)


def test_equal_blocks_are_found_in_the_prefix_cache_and_others_are_not() -> None:
    shared = PrefixBlocks(16, (1, 2, 3))
    rows = [row(0.0, 48, 2, prefix=shared), row(1.0, 48, 2, prefix=shared), row(2.0, 48, 2), row(3.0, 48, 2)]
    done = simulate(rows, COST, PLAIN)
    assert [record.cached_tokens for record in done.result.records] == [0, 32, 0, 0]


def test_a_follow_up_waits_for_its_parent() -> None:
    rows = [row(0.0, 10, 50, name="a"), row(0.1, 10, 2, name="b", parent="a"), row(0.2, 10, 2, parent="unknown")]
    first, second, third = simulate(rows, COST, PLAIN).result.records
    assert second.sent == first.finished
    assert third.sent == pytest.approx(0.2)


def test_what_the_engine_refuses_has_failed_and_so_have_its_follow_ups() -> None:
    rows = [row(0.0, 5000, 5, name="a"), row(0.0, 5, 5, name="b", parent="a"), row(0.0, 5, 5)]
    records = simulate(rows, COST, PLAIN).result.records
    assert [record.reason for record in records] == [Reason.HTTP, Reason.PARENT_FAILED, None]


def test_scatter_is_of_the_seed_and_of_mean_one() -> None:
    scattered = replace(COST, spreads=(Spread(Regime.DECODE, 0.2, 1),))
    rows = [row(0.0, 10, 3000)]
    spans = [simulate(rows, scattered, PLAIN, seed=seed).span_seconds for seed in (1, 1, 2)]
    assert spans[0] == spans[1] != spans[2]
    assert spans[0] == pytest.approx(simulate(rows, COST, PLAIN).span_seconds, rel=0.02)


def test_steps_outside_the_hull_are_counted_and_told() -> None:
    narrow = replace(COST, hull=(Bounds("decode_context", 0, 100),))
    done = simulate([row(0.0, 90, 30)], narrow, PLAIN)
    assert done.outside_hull == {"decode_context": done.num_steps_outside_hull}
    assert 15 <= done.num_steps_outside_hull <= 25
    (told,) = (note for note in done.notes if "guesses" in note)
    assert assess(done.result).verdict.cautions == (told,), "so many that no figure is to be read without it"
    assert told not in done.result.notes, "it is said once"


def test_a_few_steps_outside_the_hull_are_a_note() -> None:
    wide = replace(COST, hull=(Bounds("decode_context", 0, 118),))
    done = simulate([row(0.0, 90, 30)], wide, PLAIN)
    assert 0 < done.num_steps_outside_hull < 0.05 * done.num_steps
    assert any("guesses" in note for note in done.result.notes)
    assert assess(done.result).verdict.cautions == ()


@pytest.mark.parametrize("router", ["round-robin", "least-outstanding-tokens", "prefix-aware"])
def test_replicas_share_the_work(router: str) -> None:
    rows = [row(0.001 * index, 60, 40) for index in range(64)]
    one, four = (simulate(rows, COST, PLAIN, replicas=count, router=router) for count in (1, 4))
    assert four.span_seconds < one.span_seconds / 2
    assert four.num_steps == sum(replica.num_steps for replica in four.replicas)
    assert all(record.ok for record in four.result.records)


def test_the_least_busy_replica_is_spared_the_long_queue() -> None:
    rows = [row(0.0, 60, 400 if index % 2 == 0 else 2) for index in range(16)]
    turns, least = (
        simulate(rows, COST, PLAIN, replicas=2, router=name) for name in ("round-robin", "least-outstanding-tokens")
    )
    assert least.span_seconds <= turns.span_seconds
    assert least.machine_seconds != turns.machine_seconds


def test_a_prefix_aware_router_meets_warm_caches() -> None:
    rows = [
        row(index, 64, 2, prefix=PrefixBlocks(16, (index % 3 + 10, index % 3 + 20, index % 3 + 30, 1000 + index)))
        for index in range(24)
    ]
    cached = {
        router: sum(
            record.cached_tokens or 0
            for record in simulate(rows, COST, PLAIN, replicas=2, router=router).result.records
        )
        for router in ("round-robin", "prefix-aware")
    }
    assert cached["prefix-aware"] > cached["round-robin"]


def test_what_makes_no_sense_is_refused_with_what_would() -> None:
    with pytest.raises(ConfigError, match="no requests"):
        simulate([], COST)
    with pytest.raises(ConfigError, match="router must be one of"):
        simulate([row(0.0, 1, 1)], COST, replicas=2, router="magic")
    with pytest.raises(ConfigError, match="set num_blocks"):
        simulate([row(0.0, 1, 1)], replace(COST, kv_tokens=None))
    with pytest.raises(ConfigError, match="do not make a prompt of 40"):
        simulate([row(0.0, 40, 1, prefix=PrefixBlocks(16, (1, 2)))], COST, PLAIN)


def test_settings_are_laid_over_a_configuration() -> None:
    changed = with_settings(PLAIN, ["max_num_seqs=3", "prefix_caching=false", "watermark=0.1", "policy=sarathi"])
    assert changed == replace(PLAIN, max_num_seqs=3, prefix_caching=False, watermark=0.1, policy="sarathi")
    for wrong, said in (
        ("speed=9", "with a name of"),
        ("max_num_seqs=some", "whole number"),
        ("prefix_caching=1", "true or false"),
        ("max_num_seqs=0", "at least 1"),
    ):
        with pytest.raises(ConfigError, match=said):
            with_settings(PLAIN, [wrong])
