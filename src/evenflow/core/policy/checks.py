"""Whether the choices of a spec can work at all, and together; each refusal says what the nearest legal value is."""

import re
from collections.abc import Iterator, Mapping, Sequence
from math import ceil, isfinite

from evenflow.core.errors import PolicyProblem
from evenflow.core.learned import Learned
from evenflow.core.plan import EVERYBODY
from evenflow.core.policy.bound import Limits
from evenflow.core.policy.classes import ServiceClasses
from evenflow.core.policy.spec import PolicySpec
from evenflow.core.policy.spelling import nearest
from evenflow.core.request import DEFAULT_CLASS
from evenflow.core.step_time import StepWork

MAX_CLASSES = 16

# As good as no limit. It must have an end: what a policy holds is packed into messages whose integers have 64 bits.
_MANY = 1_000_000_000

# Smallest and largest value; None means that there is no limit on the request's side of the field.
_RANGES: Mapping[str, tuple[float, float]] = {
    "max_overtake": (0.0, 1e6),
    "overtake_per_token": (0.0, 1e6),
    "input_weight": (1e-6, 1e6),
    "output_weight": (1e-6, 1e6),
    "max_skipped_steps": (1, 1_000_000),
    "min_prefill_share": (0.0, 1.0),
    "max_prefill_share": (0.0, 1.0),
    "max_num_batched_tokens": (1, _MANY),
    "itl_target": (1e-6, 1e6),
    "min_itl_prefill_share": (0.0, 1.0),
    "min_prefill_tokens": (1, _MANY),
    "long_prompt_tokens": (1, _MANY),
    "max_long_prefills": (1, _MANY),
    "long_prompt_share": (0.0, 1.0),
    "min_long_prompt_tokens": (1, _MANY),
    "reserve_quantile": (0.01, 1.0),
    "max_backfill": (0, 1000),
    "max_num_seqs": (1, _MANY),
    "max_waiting_requests": (1, _MANY),
    "max_waiting_tokens": (1, _MANY),
}
_CLASS_RANGES: Mapping[str, tuple[float, float]] = {
    "rank": (-1_000_000, 1_000_000),
    "guaranteed_seats": (0.0, 1.0),
    "max_seats": (0.0, 1.0),
    "guaranteed_kv": (0.0, 1.0),
    "max_kv": (0.0, 1.0),
    "max_waiting_requests": (1, _MANY),
    "max_waiting_tokens": (1, _MANY),
}
_CLASS_NAME = re.compile(r"[a-z0-9_-]{1,64}")


def problems_of(
    spec: PolicySpec, limits: Limits, learned: Learned, pieces: Mapping[str, Sequence[str]]
) -> list[PolicyProblem]:
    """Numbers out of range first: what depends on them is asked only once they are right."""
    alone = [*_unknown_pieces(spec, pieces), *_out_of_range(spec, _RANGES, ""), *_weights(spec), *_class_problems(spec)]
    return alone or [*_together(spec, limits, learned), *_guarantees(spec, limits)]


def _unknown_pieces(spec: PolicySpec, pieces: Mapping[str, Sequence[str]]) -> Iterator[PolicyProblem]:
    for slot, names in pieces.items():
        chosen = getattr(spec, slot)
        if chosen not in names:
            yield PolicyProblem(slot, f"there is no {chosen!r}", nearest(chosen, names))


def _out_of_range(holder: object, ranges: Mapping[str, tuple[float, float]], path: str) -> Iterator[PolicyProblem]:
    for field, (low, high) in ranges.items():
        value = getattr(holder, field)
        if value is not None and not low <= value <= high:
            legal = low if not value > high else high  # not a number counts as too small
            reason = f"{_shown(value)} is not between {_shown(low)} and {_shown(high)}"
            yield PolicyProblem(path + field, reason, _shown(legal))


def _shown(number: float) -> str:
    """As a person may write it again: whole numbers are not taken with an exponent."""
    if not isinstance(number, int):
        return f"{number:g}"
    return str(number) if abs(number) < 10**30 else "a number of more than 30 digits"


def _weights(spec: PolicySpec) -> Iterator[PolicyProblem]:
    for tenant, weight in spec.tenant_weights:
        if not (isfinite(weight) and 1e-6 <= weight <= 1e6):
            yield PolicyProblem(f"tenant_weights.{tenant}", f"{weight} is not between 1e-06 and 1e+06", "1")


def _class_problems(spec: PolicySpec) -> Iterator[PolicyProblem]:
    names = [each.name for each in spec.classes]
    if DEFAULT_CLASS not in names:
        yield PolicyProblem("classes", f"none is named {DEFAULT_CLASS}", f"{', '.join([*names, DEFAULT_CLASS])}")
    if len(names) > MAX_CLASSES:
        yield PolicyProblem("classes", f"there are {len(names)}", f"at most {MAX_CLASSES}")
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield PolicyProblem(f"classes.{name}", "there are two of this name", "one of each name")
    for each in spec.classes:
        if not _CLASS_NAME.fullmatch(each.name) or each.name == EVERYBODY:
            yield PolicyProblem(f"classes.{each.name}", "is no name of a class", "small letters, digits, - and _")
        yield from _out_of_range(each, _CLASS_RANGES, f"classes.{each.name}.")
        for least, most in (("guaranteed_seats", "max_seats"), ("guaranteed_kv", "max_kv")):
            if getattr(each, least) > getattr(each, most):
                reason = f"{getattr(each, least):g} is more than {most} {getattr(each, most):g}"
                yield PolicyProblem(f"classes.{each.name}.{least}", reason, f"{getattr(each, most):g}")


def _together(spec: PolicySpec, limits: Limits, learned: Learned) -> Iterator[PolicyProblem]:
    if spec.interleave == "shared":
        if spec.min_prefill_share > spec.max_prefill_share:
            reason = f"{spec.min_prefill_share:g} is more than max_prefill_share {spec.max_prefill_share:g}"
            yield PolicyProblem("min_prefill_share", reason, f"{spec.max_prefill_share:g}")
        if limits.max_num_batched_tokens < 2:
            yield PolicyProblem("max_num_batched_tokens", "a step of 1 token cannot be shared", "2")
    if spec.budget == "itl-target" and learned.step_time.is_fitted:
        least = learned.step_time.seconds(StepWork(1, 1, 0, 0))
        if spec.itl_target < least:
            reason = f"{spec.itl_target:g} s is less than one decode step takes, {least:.3g} s"
            yield PolicyProblem("itl_target", reason, f"{ceil(least * 1e4) / 1e4:g}")


def _guarantees(spec: PolicySpec, limits: Limits) -> Iterator[PolicyProblem]:
    for field in ("guaranteed_seats", "guaranteed_kv"):
        total = sum(getattr(each, field) for each in spec.classes)
        if total > 1.0 + 1e-9:
            largest = max(spec.classes, key=lambda each: getattr(each, field))
            left = max(0.0, getattr(largest, field) - (total - 1.0))
            reason = f"all classes together are guaranteed {total:.0%}"
            yield PolicyProblem(f"classes.{largest.name}.{field}", reason, f"{left:g}")
            return
    classes = ServiceClasses(spec.classes, limits)
    for each in classes:
        if classes.most_seats(each) < 1:
            reason = f"other classes are guaranteed all {limits.max_num_seqs} seats, and it could never run"
            yield PolicyProblem(f"classes.{each.name}.guaranteed_seats", reason, f"{1 / limits.max_num_seqs:.3g}")
        if classes.most_blocks(each) < 1:
            reason = f"other classes are guaranteed all {limits.num_blocks} KV blocks, and it could never run"
            yield PolicyProblem(f"classes.{each.name}.guaranteed_kv", reason, f"{1 / limits.num_blocks:.3g}")
