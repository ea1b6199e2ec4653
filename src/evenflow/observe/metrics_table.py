"""Every Prometheus series that evenflow exports, as data; the registry and docs/reference/metrics.md are made from it.

Series under `vllm:` keep the names, labels and buckets that dashboards made for vLLM expect. What evenflow adds is
under `evenflow:`. A row says how one fact changes one series (`read`); facts come in the groups of `MetricTable`.
"""

from evenflow.core.events import StepRecord
from evenflow.core.policy.preemption import PreemptionMode
from evenflow.core.policy.spec import DEFAULT_CLASSES
from evenflow.core.request import FinishReason
from evenflow.observe.metric import (
    LENGTH_BUCKETS,
    PARAMS_N_BUCKETS,
    REQUEST_BUCKETS,
    SCHEDULE_BUCKETS,
    STEP_BUCKETS,
    STEP_TOKEN_BUCKETS,
    TOKEN_BUCKETS,
    TTFT_BUCKETS,
    Kind,
    Metric,
    MetricTable,
)
from evenflow.observe.spans import RequestSpan
from evenflow.observe.waits import WAIT_REASONS


def _left_out(record: StepRecord) -> dict[str, float] | None:
    if not record.left_out:
        return None
    stalled: dict[str, float] = {}
    for _, reason in record.left_out:
        stalled[reason.value] = stalled.get(reason.value, 0.0) + record.end - record.start
    return stalled


def _swapped_blocks(record: StepRecord) -> dict[str, float] | None:
    out, back = record.swapped_out_blocks, record.swapped_in_blocks
    return {"out": out, "in": back} if out or back else None


def _ttft_parts(span: RequestSpan) -> tuple[float, ...] | None:
    parts = span.ttft_parts
    if parts is None:
        return None
    return parts.intake, sum(parts.queue.values()), parts.prefill, parts.interleaved, parts.preempted


def _service_class(span: RequestSpan) -> str:
    """The policy names the classes, so a client cannot make new series."""
    return span.service_class


_COUNTER, _GAUGE, _HISTOGRAM = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM

_CLASSES = tuple(each.name for each in DEFAULT_CLASSES)

METRICS = MetricTable(
    state=(
        Metric("vllm:num_requests_running", _GAUGE, "Requests that hold a seat.", lambda v: v.spans.num_running),
        Metric("vllm:num_requests_waiting", _GAUGE, "Requests in the waiting queue.", lambda v: v.spans.num_waiting),
        Metric(
            "vllm:kv_cache_usage_perc",
            _GAUGE,
            "Share of KV blocks that running requests hold; 1 is full.",
            lambda view: view.kv_usage,
        ),
        Metric(
            "vllm:num_requests_swapped",
            _GAUGE,
            "Waiting requests whose KV blocks are in host memory; vllm:num_requests_waiting counts them too.",
            lambda view: view.spans.num_swapped,
        ),
        Metric(
            "vllm:cpu_cache_usage_perc",
            _GAUGE,
            "Share of the host pool's blocks that swapped requests hold; 1 is full.",
            lambda view: view.host_kv_usage,
        ),
        Metric(
            "evenflow:engine_up",
            _GAUGE,
            "1 while the engine lives, loading its model included; 0 once it is dead and only a restart helps.",
            lambda view: float(view.up),
        ),
        Metric(
            "evenflow:token_budget",
            _GAUGE,
            "Most tokens that the last step might have fed.",
            lambda view: view.last_step.token_budget if view.last_step is not None else 0,
        ),
        Metric(
            "evenflow:wait_seconds_total",
            _COUNTER,
            "Seconds that requests waited in the queue, first time or after a preemption, by reason.",
            lambda view: view.spans.waits.seconds,
            label="reason",
            label_values=WAIT_REASONS,
        ),
        Metric(
            "evenflow:preempted_seconds_total",
            _COUNTER,
            "Seconds that requests spent back in the queue after a preemption; counted when the stay ends.",
            lambda view: view.spans.preempted_seconds,
        ),
        Metric(
            "evenflow:recomputed_tokens_total",
            _COUNTER,
            "Tokens computed again after a preemption (lost, and not found in the prefix cache).",
            lambda view: view.spans.num_recomputed_tokens,
        ),
    ),
    step=(
        Metric(
            "vllm:iteration_tokens_total",
            _HISTOGRAM,
            "Tokens fed in one step.",
            lambda record: record.prefill_tokens + record.decode_tokens,
            STEP_TOKEN_BUCKETS,
        ),
        Metric(
            "vllm:generation_tokens_total",
            _COUNTER,
            "Tokens that requests were given.",
            lambda record: len(record.emitted),
        ),
        Metric(
            "evenflow:step_tokens",
            _HISTOGRAM,
            "Tokens fed in one step, prefill and decode apart.",
            lambda record: (record.prefill_tokens, record.decode_tokens),
            (0.0, *STEP_TOKEN_BUCKETS),
            label="kind",
            label_values=("prefill", "decode"),
        ),
        Metric(
            "evenflow:step_seconds",
            _HISTOGRAM,
            "Length of one step.",
            lambda record: record.end - record.start,
            STEP_BUCKETS,
        ),
        Metric(
            "evenflow:schedule_seconds",
            _HISTOGRAM,
            "Time to decide one step.",
            lambda record: record.schedule_seconds,
            SCHEDULE_BUCKETS,
        ),
        Metric(
            "evenflow:stalled_seconds_total",
            _COUNTER,
            "Seconds of steps that left running requests out, by reason, summed over those requests.",
            _left_out,
            label="reason",
            label_values=("budget",),
        ),
        Metric(
            "evenflow:swapped_blocks_total",
            _COUNTER,
            "KV blocks copied to host memory and back.",
            _swapped_blocks,
            label="direction",
            label_values=("out", "in"),
        ),
        Metric(
            "evenflow:swap_seconds_total",
            _COUNTER,
            "Seconds of steps that went into these copies.",
            lambda record: record.swap_seconds,
        ),
    ),
    preempted=(
        Metric("vllm:num_preemptions_total", _COUNTER, "Running requests sent back to the queue.", lambda event: 1),
        Metric(
            "evenflow:preempted_tokens_total",
            _COUNTER,
            "Computed tokens that preemptions threw away.",
            lambda event: event.lost_tokens,
        ),
        Metric(
            "evenflow:preemptions_total",
            _COUNTER,
            "The same preemptions by what became of the KV blocks.",
            lambda event: 1,
            label="mode",
            label_values=tuple(mode.value for mode in PreemptionMode),
            by=lambda event: event.mode.value,
        ),
    ),
    rejected=(Metric("evenflow:requests_rejected_total", _COUNTER, "Requests the engine refused.", lambda event: 1),),
    admitted=(
        Metric(
            "vllm:prefix_cache_queries_total",
            _COUNTER,
            "Prompt tokens looked up in the prefix cache.",
            lambda span: span.num_prompt_tokens,
        ),
        Metric(
            "vllm:prefix_cache_hits_total",
            _COUNTER,
            "Prompt tokens found in the prefix cache.",
            lambda span: span.num_cached_tokens,
        ),
    ),
    first_token=(
        Metric(
            "vllm:time_to_first_token_seconds",
            _HISTOGRAM,
            "Arrival to first token, of every request that got one.",
            lambda span: span.ttft_seconds,
            TTFT_BUCKETS,
        ),
        Metric(
            "vllm:prompt_tokens_total",
            _COUNTER,
            "Prompt tokens of requests whose prefill is done, cached ones included.",
            lambda span: span.num_prompt_tokens,
        ),
        Metric(
            "evenflow:ttft_part_seconds_total",
            _COUNTER,
            "Time to first token by what it was spent on; the parts sum to vllm:time_to_first_token_seconds_sum.",
            _ttft_parts,
            label="part",
            label_values=("intake", "queue", "prefill", "interleaved", "preempted"),
        ),
        Metric(
            "evenflow:class_time_to_first_token_seconds",
            _HISTOGRAM,
            "vllm:time_to_first_token_seconds by service class.",
            lambda span: span.ttft_seconds,
            TTFT_BUCKETS,
            label="service_class",
            label_values=_CLASSES,
            by=_service_class,
        ),
    ),
    token_gap=(
        Metric(
            "vllm:inter_token_latency_seconds",
            _HISTOGRAM,
            "Gap between consecutive tokens of one request, one sample per token.",
            lambda seconds: seconds,
            TOKEN_BUCKETS,
        ),
    ),
    finished=(
        Metric(
            "vllm:request_success_total",
            _COUNTER,
            "Requests that ended, by reason.",
            lambda span: 1,
            label="finished_reason",
            label_values=tuple(reason.value for reason in FinishReason),
            by=lambda span: span.finish_reason.value if span.finish_reason is not None else "",
        ),
        Metric(
            "vllm:request_queue_time_seconds",
            _HISTOGRAM,
            "Wait for the first seat, of every request that ended; for one that never got a seat, until its end.",
            lambda span: span.queue_seconds,
            REQUEST_BUCKETS,
        ),
        Metric(
            "vllm:request_params_max_tokens",
            _HISTOGRAM,
            "max_tokens of every request that ended.",
            lambda span: span.max_tokens,
            LENGTH_BUCKETS,
        ),
    ),
    completed=(
        Metric(
            "vllm:e2e_request_latency_seconds",
            _HISTOGRAM,
            "Arrival to finish, of completed requests.",
            lambda span: span.e2e_seconds,
            REQUEST_BUCKETS,
        ),
        Metric(
            "vllm:request_prefill_time_seconds",
            _HISTOGRAM,
            "First seat to first token without time back in the queue, of completed requests.",
            lambda span: span.prefill_seconds,
            REQUEST_BUCKETS,
        ),
        Metric(
            "vllm:request_decode_time_seconds",
            _HISTOGRAM,
            "First token to last token without time back in the queue, of completed requests.",
            lambda span: span.decode_seconds,
            REQUEST_BUCKETS,
        ),
        Metric(
            "vllm:request_inference_time_seconds",
            _HISTOGRAM,
            "First seat to last token without time back in the queue, of completed requests.",
            lambda span: span.inference_seconds,
            REQUEST_BUCKETS,
        ),
        Metric(
            "vllm:request_time_per_output_token_seconds",
            _HISTOGRAM,
            "Mean gap between tokens, of completed requests; those of fewer than two tokens have none.",
            lambda span: span.tpot_seconds,
            TOKEN_BUCKETS,
        ),
        Metric(
            "evenflow:class_time_per_output_token_seconds",
            _HISTOGRAM,
            "vllm:request_time_per_output_token_seconds by service class.",
            lambda span: span.tpot_seconds,
            TOKEN_BUCKETS,
            label="service_class",
            label_values=_CLASSES,
            by=_service_class,
        ),
        Metric(
            "evenflow:class_e2e_request_latency_seconds",
            _HISTOGRAM,
            "vllm:e2e_request_latency_seconds by service class.",
            lambda span: span.e2e_seconds,
            REQUEST_BUCKETS,
            label="service_class",
            label_values=_CLASSES,
            by=_service_class,
        ),
        Metric(
            "evenflow:requests_without_tpot_total",
            _COUNTER,
            "Completed requests of fewer than two tokens.",
            lambda span: 1 if span.tpot_seconds is None else None,
        ),
        Metric(
            "vllm:request_prompt_tokens",
            _HISTOGRAM,
            "Prompt tokens of completed requests.",
            lambda span: span.num_prompt_tokens,
            LENGTH_BUCKETS,
        ),
        Metric(
            "vllm:request_generation_tokens",
            _HISTOGRAM,
            "Output tokens of completed requests.",
            lambda span: span.num_output_tokens,
            LENGTH_BUCKETS,
        ),
    ),
    front=(
        Metric(
            "vllm:request_params_n",
            _HISTOGRAM,
            "Completions asked for at once (n); the front counts a request once, the engine runs n.",
            lambda n: n,
            PARAMS_N_BUCKETS,
        ),
    ),
    lost=(
        Metric(
            "evenflow:requests_lost_total",
            _COUNTER,
            "Requests under way when the engine died; they ended with an error, and no other counter has them.",
            lambda num: num,
        ),
    ),
)
