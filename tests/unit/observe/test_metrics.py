"""What Prometheus is told: names, labels and buckets as published; numbers as the log says."""

from collections.abc import Iterable
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from evenflow.core.events import Event, Rejected
from evenflow.core.plan import WaitReason
from evenflow.core.request import FinishReason, RequestId
from evenflow.observe.fold import spans_of
from evenflow.observe.log import EventLogWriter, read_log
from evenflow.observe.metrics import Metrics
from recording import busy_runs, flat, recorded
from story import alone, arrived, finished, preempted, scheduled, step, swapped

DROP_IN = {
    "vllm:num_requests_running": "gauge",
    "vllm:num_requests_waiting": "gauge",
    "vllm:kv_cache_usage_perc": "gauge",
    "vllm:num_requests_swapped": "gauge",
    "vllm:cpu_cache_usage_perc": "gauge",
    "vllm:num_preemptions": "counter",
    "vllm:prompt_tokens": "counter",
    "vllm:generation_tokens": "counter",
    "vllm:request_success": "counter",
    "vllm:prefix_cache_queries": "counter",
    "vllm:prefix_cache_hits": "counter",
    "vllm:time_to_first_token_seconds": "histogram",
    "vllm:inter_token_latency_seconds": "histogram",
    "vllm:request_time_per_output_token_seconds": "histogram",
    "vllm:e2e_request_latency_seconds": "histogram",
    "vllm:request_queue_time_seconds": "histogram",
    "vllm:request_prefill_time_seconds": "histogram",
    "vllm:request_decode_time_seconds": "histogram",
    "vllm:request_inference_time_seconds": "histogram",
    "vllm:iteration_tokens_total": "histogram",
    "vllm:request_prompt_tokens": "histogram",
    "vllm:request_generation_tokens": "histogram",
    "vllm:request_params_max_tokens": "histogram",
    "vllm:request_params_n": "histogram",
}

TTFT = ".001 .005 .01 .02 .04 .06 .08 .1 .25 .5 .75 1 2.5 5 7.5 10 20 40 80 160 640 2560"
TOKEN = ".01 .025 .05 .075 .1 .15 .2 .3 .4 .5 .75 1 2.5 5 7.5 10 20 40 80"
REQUEST = ".3 .5 .8 1 1.5 2 2.5 5 10 15 20 30 40 50 60 120 240 480 960 1920 7680"
STEP = "1 2 4 8 16 32 64 128 256 512 1024 2048 4096 8192 16384"
BUCKETS = {
    "vllm:time_to_first_token_seconds": TTFT,
    "vllm:inter_token_latency_seconds": TOKEN,
    "vllm:request_time_per_output_token_seconds": TOKEN,
    "vllm:e2e_request_latency_seconds": REQUEST,
    "vllm:request_queue_time_seconds": REQUEST,
    "vllm:request_prefill_time_seconds": REQUEST,
    "vllm:request_decode_time_seconds": REQUEST,
    "vllm:request_inference_time_seconds": REQUEST,
    "vllm:iteration_tokens_total": STEP,
}


def rendered(events: Iterable[Event]) -> Metrics:
    metrics = Metrics("tiny")
    metrics.feed(events)
    return metrics


def samples(metrics: Metrics) -> list[Sample]:
    families = text_string_to_metric_families(metrics.render()[0].decode())
    return [sample for family in families for sample in family.samples]


def value(metrics: Metrics, name: str, **labels: str) -> float:
    (found,) = [s.value for s in samples(metrics) if s.name == name and labels.items() <= s.labels.items()]
    return float(found)


def test_the_names_and_kinds_that_dashboards_expect_are_there_before_the_first_request() -> None:
    text = Metrics("tiny").render()[0].decode()
    kinds = {family.name: family.type for family in text_string_to_metric_families(text)}
    assert {name: kind for name, kind in kinds.items() if name.startswith("vllm:")} == DROP_IN


def test_everything_else_is_under_our_own_name() -> None:
    text = Metrics("tiny").render()[0].decode()
    own = [family.name for family in text_string_to_metric_families(text) if family.name not in DROP_IN]
    assert own
    assert all(name.startswith("evenflow:") for name in own)


def test_drop_in_series_carry_the_two_labels_and_no_other() -> None:
    allowed = {"vllm:request_success_total": {"finished_reason"}}
    for sample in samples(rendered(flat(recorded(1)))):
        assert sample.labels["model_name"] == "tiny"
        assert sample.labels["engine"] == "0"
        if sample.name.startswith("vllm:"):
            own = {"le"} if sample.name.endswith("_bucket") else allowed.get(sample.name, set())
            assert sample.labels.keys() - {"model_name", "engine"} == own


@pytest.mark.parametrize(("name", "bounds"), BUCKETS.items())
def test_buckets_are_the_published_ones(name: str, bounds: str) -> None:
    le = [sample.labels["le"] for sample in samples(Metrics("tiny")) if sample.name == f"{name}_bucket"]
    assert [float(bound) for bound in le] == [*map(float, bounds.split()), float("inf")]


def test_one_request_alone_gives_the_numbers_of_its_life() -> None:
    metrics = rendered(alone())
    expected = {
        "vllm:time_to_first_token_seconds_sum": 3.0,
        "vllm:inter_token_latency_seconds_sum": 6.0,
        "vllm:inter_token_latency_seconds_count": 2,
        "vllm:request_time_per_output_token_seconds_sum": 3.0,
        "vllm:e2e_request_latency_seconds_sum": 9.0,
        "vllm:request_queue_time_seconds_sum": 1.0,
        "vllm:request_prefill_time_seconds_sum": 1.0,
        "vllm:request_decode_time_seconds_sum": 6.0,
        "vllm:request_inference_time_seconds_sum": 7.0,
        "vllm:iteration_tokens_total_sum": 7,
        "vllm:iteration_tokens_total_count": 3,
        "vllm:prompt_tokens_total": 8,
        "vllm:generation_tokens_total": 3,
        "vllm:prefix_cache_queries_total": 8,
        "vllm:prefix_cache_hits_total": 4,
        "vllm:request_prompt_tokens_sum": 8,
        "vllm:request_generation_tokens_sum": 3,
        "vllm:request_params_max_tokens_sum": 16,
        "evenflow:step_seconds_sum": 3.0,
        "evenflow:token_budget": 16,
    }
    assert {name: value(metrics, name) for name in expected} == expected
    assert value(metrics, "vllm:request_success_total", finished_reason="length") == 1
    assert value(metrics, "evenflow:step_tokens_sum", kind="prefill") == 4
    assert value(metrics, "evenflow:ttft_part_seconds_total", part="intake") == 1.0


def test_a_swap_shows_in_host_memory_and_in_no_recomputed_token() -> None:
    metrics = Metrics("tiny")
    metrics.feed([arrived("a", 0.0), scheduled("a", 1, 0.0), step(1, 0.0, 1.0, fed="a")])
    metrics.feed([swapped("a", 2, 1.0, kept=8), step(2, 1.0, 2.0, running=0, waiting=1, swapped_out=3, host_blocks=3)])
    assert value(metrics, "vllm:num_requests_swapped") == 1
    assert value(metrics, "vllm:num_requests_waiting") == 1
    assert value(metrics, "vllm:cpu_cache_usage_perc") == 0.75
    metrics.feed([scheduled("a", 3, 2.0, resumed=True, cached=4, swapped_in=4)])
    assert value(metrics, "vllm:num_requests_swapped") == 0
    metrics.feed([step(3, 2.0, 3.0, emitted="a", swapped_in=2)])
    assert value(metrics, "vllm:cpu_cache_usage_perc") == 0.0
    expected: dict[str, float] = {"vllm:num_preemptions_total": 1, "evenflow:preempted_tokens_total": 0}
    expected |= {"evenflow:recomputed_tokens_total": 0, "evenflow:swap_seconds_total": 0.625}
    assert {name: value(metrics, name) for name in expected} == expected
    assert value(metrics, "evenflow:preemptions_total", mode="swap") == 1
    assert value(metrics, "evenflow:preemptions_total", mode="recompute") == 0
    assert value(metrics, "evenflow:swapped_blocks_total", direction="out") == 3
    assert value(metrics, "evenflow:swapped_blocks_total", direction="in") == 2


def test_who_is_aborted_in_host_memory_is_no_longer_swapped() -> None:
    events: list[Event] = [arrived("a", 0.0), scheduled("a", 1, 0.0), swapped("a", 2, 1.0)]
    metrics = rendered([*events, finished("a", 2, 2.0, reason=FinishReason.ABORT, outputs=0)])
    assert value(metrics, "vllm:num_requests_swapped") == 0


def test_an_observation_on_a_bound_belongs_to_the_bucket_below() -> None:
    events = [*list(alone())[:4], step(2, 3.0, 3.5, emitted="a")]
    metrics = rendered(events)
    assert value(metrics, "vllm:inter_token_latency_seconds_bucket", le="0.4") == 0
    assert value(metrics, "vllm:inter_token_latency_seconds_bucket", le="0.5") == 1


def test_the_aborted_count_as_aborted_and_not_in_the_latencies_of_completed_requests() -> None:
    metrics = rendered([*list(alone())[:5], finished("a", 2, 6.0, reason=FinishReason.ABORT, outputs=2)])
    assert value(metrics, "vllm:request_success_total", finished_reason="abort") == 1
    assert value(metrics, "vllm:time_to_first_token_seconds_count") == 1
    assert value(metrics, "vllm:request_queue_time_seconds_count") == 1
    assert value(metrics, "vllm:e2e_request_latency_seconds_count") == 0
    assert value(metrics, "vllm:request_time_per_output_token_seconds_count") == 0


def with_one_running_and_one_waiting() -> Metrics:
    events: list[Event] = [
        arrived("a", 0.0),
        arrived("b", 0.0),
        scheduled("a", 1, 0.0),
        step(1, 0.0, 1.0, fed="a", door=WaitReason.KV, running=1, waiting=1),
    ]
    return rendered(events)


def gauges(metrics: Metrics) -> list[float]:
    names = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc")
    return [value(metrics, name) for name in names]


def test_gauges_fall_to_zero_when_everything_was_aborted_although_no_step_follows() -> None:
    metrics = with_one_running_and_one_waiting()
    assert gauges(metrics) == [1, 1, 0.25]
    metrics.feed([finished(name, 1, 2.0, reason=FinishReason.ABORT, outputs=0) for name in "ab"])
    assert gauges(metrics) == [0, 0, 0]


def test_a_dead_engine_is_told_from_an_idle_one() -> None:
    metrics = with_one_running_and_one_waiting()
    assert gauges(metrics) == [1, 1, 0.25]
    assert [value(metrics, f"evenflow:{name}") for name in ("engine_up", "requests_lost_total")] == [1, 0]
    metrics.engine_died(2)
    assert gauges(metrics) == [0, 0, 0]
    assert [value(metrics, f"evenflow:{name}") for name in ("engine_up", "requests_lost_total")] == [0, 2]


def test_preemptions_are_counted_with_what_they_cost() -> None:
    metrics = rendered(
        [
            arrived("a", 0.0),
            scheduled("a", 1, 0.0),
            step(1, 0.0, 1.0, fed="a"),
            preempted("a", 2, 1.0, lost=6),
            step(2, 1.0, 4.0, door=WaitReason.PREEMPTION, running=0, waiting=1),
            scheduled("a", 3, 4.0, cached=2, resumed=True),
        ]
    )
    assert value(metrics, "vllm:num_preemptions_total") == 1
    assert value(metrics, "evenflow:preempted_tokens_total") == 6
    assert value(metrics, "evenflow:recomputed_tokens_total") == 4
    assert value(metrics, "evenflow:preempted_seconds_total") == 3.0
    assert value(metrics, "evenflow:wait_seconds_total", reason="preemption") == 3.0


def test_running_requests_left_out_of_a_step_are_stalled_for_its_length() -> None:
    metrics = rendered([step(1, 0.0, 0.5, emitted="a", left_out="bc")])
    assert value(metrics, "evenflow:stalled_seconds_total", reason="budget") == 1.0


def test_refusals_and_what_only_the_front_knows_are_counted() -> None:
    metrics = rendered([Rejected(0.0, RequestId("x"), "too long")])
    metrics.observe_params_n(4)
    assert value(metrics, "evenflow:requests_rejected_total") == 1
    assert value(metrics, "vllm:request_params_n_sum") == 4
    assert value(metrics, "vllm:request_params_n_count") == 1


def test_prometheus_after_a_run_is_the_fold_of_its_log(tmp_path: Path) -> None:
    for run in busy_runs(5):
        live = Metrics("tiny")
        with EventLogWriter(tmp_path / "run.jsonl") as log:
            for batch in run:
                live.feed(batch)
                log.write(batch)
        offline = Metrics("tiny")
        with read_log(tmp_path / "run.jsonl") as events:
            offline.feed(events)
        assert offline.render() == live.render()
        assert value(live, "vllm:generation_tokens_total") > 20
        assert value(live, "vllm:num_preemptions_total") > 0


def test_histograms_hold_what_the_spans_of_the_run_say() -> None:
    (run,) = busy_runs(1)
    events = flat(run)
    spans = list(spans_of(events))
    metrics = rendered(events)
    ttft = [span.ttft_seconds for span in spans if span.ttft_seconds is not None]
    gaps = [gap for span in spans for gap in span.itl_seconds]
    for name, observed in (("time_to_first_token", ttft), ("inter_token_latency", gaps)):
        assert value(metrics, f"vllm:{name}_seconds_count") == len(observed) > 3
        assert value(metrics, f"vllm:{name}_seconds_sum") == sum(observed)
        for le in ("0.5", "1.0", "5.0"):
            assert value(metrics, f"vllm:{name}_seconds_bucket", le=le) == sum(each <= float(le) for each in observed)
    parts = [s.value for s in samples(metrics) if s.name == "evenflow:ttft_part_seconds_total"]
    assert sum(parts) == sum(ttft)
