"""The pieces by name: what each is for, which fields of the spec it reads, and how it is made. A piece of one's own is
one more entry in such a table.

`build_policy` turns a spec into pieces, or refuses it as a whole with every reason that it finds.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from evenflow.core.config import SchedulerConfig
from evenflow.core.errors import PolicyError
from evenflow.core.learned import Learned
from evenflow.core.policy.bound import Bound, Limits
from evenflow.core.policy.budget import FixedBudget, ItlTarget
from evenflow.core.policy.checks import problems_of
from evenflow.core.policy.classes import ServiceClasses
from evenflow.core.policy.fairness import OneFlow
from evenflow.core.policy.interleave import DecodeFirst, InOrder, PrefillFirst, Shared
from evenflow.core.policy.long_prompts import Limited, Unlimited
from evenflow.core.policy.order import ByPriority, EarliestDeadline, FirstCome, ShortestPrompt
from evenflow.core.policy.preemption import Cheaper, Recompute, Swap
from evenflow.core.policy.reserve import ReserveExpected, ReserveKnown, ReserveMax
from evenflow.core.policy.scheduling import SchedulingPolicy
from evenflow.core.policy.spec import PolicySpec
from evenflow.core.policy.vtc import VirtualTokenCounter


class Kit(NamedTuple):
    """What a piece may be made from."""

    spec: PolicySpec
    limits: Limits
    learned: Learned


@dataclass(frozen=True, slots=True)
class Piece:
    """`fields` are those of the spec that have an effect with this piece."""

    sentence: str
    make: Callable[[Kit], Any]  # Any: each slot has a protocol of its own, which SchedulingPolicy asks for
    fields: tuple[str, ...] = ()


Pieces = Mapping[str, Mapping[str, Piece]]
"""By slot (a field of the spec) and name."""

PIECES: Pieces = {
    "order": {
        "fcfs": Piece("In order of arrival.", lambda kit: FirstCome()),
        "priority": Piece("The request's own priority first, smaller before larger.", lambda kit: ByPriority()),
        "shortest-prompt": Piece(
            "Short prompts before long ones, but nobody is passed for ever.",
            lambda kit: ShortestPrompt(kit.spec.max_overtake, kit.spec.overtake_per_token),
            ("max_overtake", "overtake_per_token"),
        ),
        "deadline": Piece(
            "The earliest deadline of a first token first.",
            lambda kit: EarliestDeadline(kit.spec.max_overtake),
            ("max_overtake",),
        ),
    },
    "fairness": {
        "none": Piece("One queue, whoever the tenant.", lambda kit: OneFlow()),
        "vtc": Piece(
            "The tenant that has had the least service comes in next.",
            lambda kit: VirtualTokenCounter(kit.spec.input_weight, kit.spec.output_weight, kit.spec.tenant_weights),
            ("input_weight", "output_weight", "tenant_weights"),
        ),
    },
    "interleave": {
        "decode-first": Piece("Decodes first, prefills share what is left.", lambda kit: DecodeFirst()),
        "prefill-first": Piece(
            "Prefills first, but decodes are not left out for long.",
            lambda kit: PrefillFirst(kit.spec.max_skipped_steps),
            ("max_skipped_steps",),
        ),
        "in-order": Piece("Front to back, whether decode or prefill.", lambda kit: InOrder()),
        "shared": Piece(
            "Prefills have a share of each step between two bounds, decodes the rest.",
            lambda kit: Shared(kit.spec.min_prefill_share, kit.spec.max_prefill_share),
            ("min_prefill_share", "max_prefill_share"),
        ),
    },
    "chunking": {
        "chunked": Piece("A prompt is split over steps as the budget wants.", lambda kit: True),
        "whole": Piece("A prompt is fed whole, unless no step could hold it.", lambda kit: False),
    },
    "budget": {
        "fixed": Piece(
            "The same number of tokens in every step.",
            lambda kit: FixedBudget(kit.limits.max_num_batched_tokens),
            ("max_num_batched_tokens",),
        ),
        "itl-target": Piece(
            "As many prefill tokens as keep a step within a time, by a model fitted to the engine's own steps.",
            lambda kit: ItlTarget(
                kit.spec.itl_target,
                kit.spec.min_itl_prefill_share,
                kit.spec.min_prefill_tokens,
                kit.limits.max_num_batched_tokens,
                kit.learned.step_time,
            ),
            ("itl_target", "min_itl_prefill_share", "min_prefill_tokens", "max_num_batched_tokens"),
        ),
    },
    "long_prompts": {
        "unlimited": Piece("A long prompt is a prompt like any other.", lambda kit: Unlimited()),
        "limited": Piece(
            "Few long prompts at once, with a share of each step and steady progress.",
            lambda kit: Limited(
                kit.spec.long_prompt_tokens,
                kit.spec.max_long_prefills,
                kit.spec.long_prompt_share,
                kit.spec.min_long_prompt_tokens,
            ),
            ("long_prompt_tokens", "max_long_prefills", "long_prompt_share", "min_long_prompt_tokens"),
        ),
    },
    "reserve": {
        "prompt": Piece("Memory for what is known; the answer grows on demand.", lambda kit: ReserveKnown()),
        "expected": Piece(
            "Memory for the answer's usual length too, learned from those that ended.",
            lambda kit: ReserveExpected(kit.spec.reserve_quantile, kit.learned.output_lengths),
            ("reserve_quantile",),
        ),
        "max": Piece("Memory for the longest answer that was asked for.", lambda kit: ReserveMax()),
    },
    "preemption": {
        "recompute": Piece("A victim's blocks are freed, and it computes again.", lambda kit: Recompute()),
        "swap": Piece("A victim's blocks go to host memory and come back, while there is room.", lambda kit: Swap()),
        "auto": Piece(
            "Recompute or swap, whichever takes less time by what the engine has seen.",
            lambda kit: Cheaper(kit.learned.step_time, kit.learned.copy_time),
        ),
    },
    "scope": {
        "continuous": Piece("Requests come and go at every step.", lambda kit: False),
        "static": Piece("A batch runs until its last request ends; then the next is formed.", lambda kit: True),
    },
}


def limits_of(spec: PolicySpec, config: SchedulerConfig, *, num_blocks: int, block_size: int) -> Limits:
    """What holds under this spec in this engine: the smaller of what was asked for and what was built."""
    return Limits(
        max_num_seqs=min(spec.max_num_seqs or config.max_num_seqs, config.max_num_seqs),
        max_num_batched_tokens=min(
            spec.max_num_batched_tokens or config.max_num_batched_tokens, config.max_num_batched_tokens
        ),
        max_model_len=config.max_model_len,
        num_blocks=num_blocks,
        block_size=block_size,
    )


def build_policy(spec: PolicySpec, limits: Limits, learned: Learned, pieces: Pieces = PIECES) -> SchedulingPolicy:
    """Raises `PolicyError` with everything that is wrong with the spec."""
    problems = problems_of(spec, limits, learned, {slot: tuple(choices) for slot, choices in pieces.items()})
    if problems:
        raise PolicyError(problems)
    kit = Kit(spec, limits, learned)
    made = {slot: choices[getattr(spec, slot)].make(kit) for slot, choices in pieces.items()}
    return SchedulingPolicy(
        spec=spec,
        limits=limits,
        order=made["order"],
        fairness=made["fairness"],
        interleave=made["interleave"],
        budget=made["budget"],
        long_prompts=made["long_prompts"],
        reserve=made["reserve"],
        preemption=made["preemption"],
        classes=ServiceClasses(spec.classes, limits),
        splits_prompts=made["chunking"],
        is_static=made["scope"],
    )


def bounds_of(spec: PolicySpec, config: SchedulerConfig, *, num_blocks: int, block_size: int) -> tuple[Bound, ...]:
    """What this spec would promise in such an engine."""
    limits = limits_of(spec, config, num_blocks=num_blocks, block_size=block_size)
    return build_policy(spec, limits, Learned()).bounds()
