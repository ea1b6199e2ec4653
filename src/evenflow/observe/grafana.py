"""A Grafana dashboard, made from the table of metrics: docs/reference/grafana.json.

The first row asks only for series that vLLM exports too, so it draws a vLLM server as well; the second asks for what
only evenflow has. `tests/e2e/test_prometheus.py` has a real Prometheus answer every query.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from evenflow.observe.metric import Kind
from evenflow.observe.metrics_table import METRICS

SELECTOR = '{model_name=~"$model_name"}'
WINDOW = "$__rate_interval"
PERCENTS = (50, 95, 99)
_COLUMNS = 3
_WIDTH, _HEIGHT = 8, 8
_METRIC = re.compile(r"\b(?:vllm|evenflow):[a-z0-9_]+")


@dataclass(frozen=True, slots=True)
class Panel:
    """`queries` are legend and PromQL. `unit` is Grafana's name for it."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    stacked: bool = False


def _quantiles(metric: str) -> tuple[tuple[str, str], ...]:
    rates = f"sum by (le) (rate({metric}_bucket{SELECTOR}[{WINDOW}]))"
    return tuple((f"P{percent}", f"histogram_quantile({percent / 100:g}, {rates})") for percent in PERCENTS)


def _by(label: str, metric: str) -> tuple[tuple[str, str], ...]:
    return ((f"{{{{{label}}}}}", f"sum by ({label}) (rate({metric}{SELECTOR}[{WINDOW}]))"),)


def _class_quantiles(metric: str) -> tuple[tuple[str, str], ...]:
    rates = f"sum by (le, service_class) (rate({metric}_bucket{SELECTOR}[{WINDOW}]))"
    return (("{{service_class}}", f"histogram_quantile(0.95, {rates})"),)


def _sum(metric: str) -> str:
    return f"sum({metric}{SELECTOR})"


def _rate(metric: str) -> str:
    return f"sum(rate({metric}{SELECTOR}[{WINDOW}]))"


COMMON = (
    Panel("Time to first token", "s", _quantiles("vllm:time_to_first_token_seconds")),
    Panel("Inter-token latency", "s", _quantiles("vllm:inter_token_latency_seconds")),
    Panel("End-to-end latency", "s", _quantiles("vllm:e2e_request_latency_seconds")),
    Panel(
        "Requests",
        "short",
        (("running", _sum("vllm:num_requests_running")), ("waiting", _sum("vllm:num_requests_waiting"))),
    ),
    Panel("KV cache use", "percentunit", (("used", f"max(vllm:kv_cache_usage_perc{SELECTOR})"),)),
    Panel("Preemptions per second", "short", (("preemptions", _rate("vllm:num_preemptions_total")),)),
    Panel(
        "Tokens per second",
        "short",
        (("prompt", _rate("vllm:prompt_tokens_total")), ("generated", _rate("vllm:generation_tokens_total"))),
    ),
    Panel("Queue time", "s", _quantiles("vllm:request_queue_time_seconds")),
    Panel(
        "Prefix cache hit rate",
        "percentunit",
        (("hits", f"{_rate('vllm:prefix_cache_hits_total')} / {_rate('vllm:prefix_cache_queries_total')}"),),
    ),
)

OWN = (
    Panel(
        "Tokens per step by kind",
        "short",
        (
            (
                "{{kind}}",
                f"sum by (kind) (rate(evenflow:step_tokens_sum{SELECTOR}[{WINDOW}])) / "
                f"sum by (kind) (rate(evenflow:step_tokens_count{SELECTOR}[{WINDOW}]))",
            ),
            ("budget", f"max(evenflow:token_budget{SELECTOR})"),
        ),
    ),
    Panel("Time to first token by part", "s", _by("part", "evenflow:ttft_part_seconds_total"), stacked=True),
    Panel("Waiting requests by reason", "short", _by("reason", "evenflow:wait_seconds_total"), stacked=True),
    Panel("Step time", "s", _quantiles("evenflow:step_seconds")),
    Panel("Preemptions per second by mode", "short", _by("mode", "evenflow:preemptions_total"), stacked=True),
    Panel(
        "Tokens computed again per second",
        "short",
        (("recomputed", _rate("evenflow:recomputed_tokens_total")), ("lost", _rate("evenflow:preempted_tokens_total"))),
    ),
    Panel("Time to first token by class, P95", "s", _class_quantiles("evenflow:class_time_to_first_token_seconds")),
    Panel("Time per output token by class, P95", "s", _class_quantiles("evenflow:class_time_per_output_token_seconds")),
    Panel("End-to-end latency by class, P95", "s", _class_quantiles("evenflow:class_e2e_request_latency_seconds")),
    Panel(
        "Engine up, and requests lost with it per second",
        "short",
        (("up", f"min(evenflow:engine_up{SELECTOR})"), ("lost", _rate("evenflow:requests_lost_total"))),
    ),
)


def queries() -> Iterator[str]:
    for panel in (*COMMON, *OWN):
        for _, query in panel.queries:
            yield query


def series_asked_for(query: str) -> set[str]:
    return set(_METRIC.findall(query))


def series_names() -> set[str]:
    """What Prometheus knows after a scrape: a histogram is three series."""
    names = set()
    for group in METRICS:
        for metric in group:
            suffixes = ("_bucket", "_sum", "_count") if metric.kind is Kind.HISTOGRAM else ("",)
            names |= {metric.name + suffix for suffix in suffixes}
    return names


def dashboard() -> str:
    panels: list[dict[str, object]] = []
    top = 0
    for title, group in (("Latency, load and memory", COMMON), ("Only of evenflow", OWN)):
        grid = {"x": 0, "y": top, "w": _COLUMNS * _WIDTH, "h": 1}
        panels.append({"id": len(panels) + 1, "type": "row", "title": title, "collapsed": False, "gridPos": grid})
        top += 1
        for index, panel in enumerate(group):
            row, column = divmod(index, _COLUMNS)
            place = {"x": column * _WIDTH, "y": top + row * _HEIGHT, "w": _WIDTH, "h": _HEIGHT}
            panels.append(_panel(panel, len(panels) + 1, place))
        top += -(-len(group) // _COLUMNS) * _HEIGHT
    body = {
        "title": "evenflow",
        "uid": "evenflow",
        "description": "Made by `python -m evenflow.observe.reference docs/reference`; change the code, not this file.",
        "tags": ["evenflow", "vllm"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "templating": {"list": [_data_source(), _model_name()]},
        "panels": panels,
    }
    return json.dumps(body, indent=1) + "\n"


_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, object]:
    custom = {"fillOpacity": 30 if panel.stacked else 8, "stacking": {"mode": "normal" if panel.stacked else "none"}}
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0, "custom": custom}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {"refId": chr(ord("A") + index), "datasource": _SOURCE, "expr": query, "legendFormat": legend}
            for index, (legend, query) in enumerate(panel.queries)
        ],
    }


def _data_source() -> dict[str, object]:
    return {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _model_name() -> dict[str, object]:
    query = "label_values(vllm:num_requests_running, model_name)"
    return {
        "name": "model_name",
        "label": "Model",
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": query, "refId": "model_name"},
        "definition": query,
        "refresh": 2,
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
    }
