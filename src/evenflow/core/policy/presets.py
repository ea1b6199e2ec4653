"""Named policies: plain tables of choices. What a table does not say is as in `PolicySpec()`.

The first five choose what the systems they are named after are known for, so that like is compared with like in one
engine; they are not those systems. A policy of one's own may start from any of them.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from evenflow.core.policy.spec import ClassSpec, PolicySpec


class Preset(NamedTuple):
    """`choices` are fields of `PolicySpec`."""

    sentence: str
    choices: Mapping[str, Any]  # Any: fields of every type; `policy_of` hands them to PolicySpec


# Batch work fills what the others leave, and is the first to give way.
_RANKED = (ClassSpec("interactive", rank=0), ClassSpec("default", rank=1), ClassSpec("batch", rank=2))
# A tenth of the seats stays free of other classes, so that an urgent request need not displace anybody for one.
_INTERACTIVE = (
    ClassSpec("interactive", rank=0, guaranteed_seats=0.1),
    ClassSpec("default", rank=1),
    ClassSpec("batch", rank=2, max_seats=0.5),
)

DEFAULT_PRESET = "evenflow-balanced"

PRESETS: Mapping[str, Preset] = {
    "static": Preset(
        "A fixed batch runs until its last request ends; then the next batch is formed. The baseline.",
        {"scope": "static", "chunking": "whole", "reserve": "max"},
    ),
    "orca": Preset(
        "Requests come and go at every step; prompts run whole, and memory is set aside for the longest answer.",
        {"chunking": "whole", "reserve": "max"},
    ),
    "vllm": Preset(
        "A step's tokens go to running requests in the order of admission, then to new ones; prompts are chunked.",
        {"interleave": "in-order", "preemption": "recompute"},
    ),
    "sarathi": Preset(
        "Decodes first, then prompts in progress, then new ones, within 512 tokens: no decode is ever stalled.",
        {"interleave": "decode-first", "max_num_batched_tokens": 512, "preemption": "recompute"},
    ),
    "sglang": Preset(
        "Prefills first: newcomers get their first token soonest, and running streams wait for them.",
        {
            "interleave": "prefill-first",
            "max_skipped_steps": 1000,
            "reserve": "expected",
            "reserve_quantile": 0.5,
            "preemption": "recompute",
        },
    ),
    "fastgen": Preset(
        "Every step is filled to the same size: decodes first, then pieces of prompts, short ones composed.",
        {"interleave": "decode-first", "max_backfill": 8, "preemption": "recompute"},
    ),
    "evenflow-interactive": Preset(
        "Steady streams and early first tokens: steps of 50 ms, short prompts before long, tenants equal.",
        {
            "order": "shortest-prompt",
            "max_overtake": 10.0,
            "fairness": "vtc",
            "interleave": "shared",
            "min_prefill_share": 0.1,
            "budget": "itl-target",
            "itl_target": 0.05,
            "long_prompts": "limited",
            "long_prompt_tokens": 1024,
            "max_backfill": 4,
            "reserve": "expected",
            "classes": _INTERACTIVE,
            "refuse_late": True,
        },
    ),
    "evenflow-throughput": Preset(
        "As many tokens per second as the machine gives: full steps, memory filled, few evictions.",
        {
            "interleave": "shared",
            "min_prefill_share": 0.1,
            "reserve": "expected",
            "reserve_quantile": 0.8,
            "max_backfill": 16,
            "classes": _RANKED,
        },
    ),
    "evenflow-balanced": Preset(
        "Streams within 100 ms a token, everything else for throughput; long prompts cannot hold up short ones.",
        {
            "interleave": "shared",
            "min_prefill_share": 0.1,
            "budget": "itl-target",
            "itl_target": 0.1,
            "long_prompts": "limited",
            "max_backfill": 8,
            "reserve": "expected",
            "classes": _RANKED,
        },
    ),
}


def policy_of(preset: str) -> PolicySpec:
    """Raises `KeyError` for a name that is not in `PRESETS`."""
    return replace(PolicySpec(), **PRESETS[preset].choices)
