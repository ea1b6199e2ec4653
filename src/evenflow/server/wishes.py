"""What a client says about how its request should be scheduled, and what the scheduler makes of it.

    service_tier   priority -> class interactive, flex -> class batch, default and auto -> class default
    user           the tenant, where the API key does not say it; with neither all requests are of one tenant
    priority       smaller comes first, under an order that looks at it; body field, or header x-priority
    deadline       for the first token, in milliseconds from arrival; ttft_deadline_ms, or header x-ttft-deadline-ms

The body wins over a header: a header is what a proxy adds for a whole service.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Protocol, TypedDict

from evenflow.core.errors import InvalidRequest
from evenflow.core.request import DEFAULT_CLASS, DEFAULT_TENANT

PRIORITY_HEADER = "x-priority"
DEADLINE_HEADER = "x-ttft-deadline-ms"
TIERS: Mapping[str, str] = {"priority": "interactive", "default": DEFAULT_CLASS, "auto": DEFAULT_CLASS, "flex": "batch"}
MAX_USER_CHARS = 256
MAX_DEADLINE_MS = 86_400_000.0


@dataclass(frozen=True, slots=True)
class Wishes:
    """The headers of one call, unread, and the tenant of its key; None where there is none."""

    priority: str | None = None
    ttft_deadline_ms: str | None = None
    tenant: str | None = None


class Fields(Protocol):
    """The part of a body that the scheduler cares about."""

    priority: int | None
    ttft_deadline_ms: float | None
    service_tier: str | None
    user: str | None


class Scheduling(TypedDict):
    """Fields of `Request`."""

    priority: int
    ttft_deadline: float | None
    service_class: str
    tenant: str


def scheduling_of(fields: Fields, wishes: Wishes, arrival_time: float) -> Scheduling:
    """Raises InvalidRequest with the field or header that is at fault."""
    deadline = _deadline_ms(fields, wishes)
    return Scheduling(
        priority=_priority(fields, wishes),
        ttft_deadline=None if deadline is None else arrival_time + deadline / 1e3,
        service_class=_class(fields.service_tier),
        tenant=_tenant(fields.user) if wishes.tenant is None else wishes.tenant,
    )


def _priority(fields: Fields, wishes: Wishes) -> int:
    if fields.priority is not None:
        return fields.priority  # its range was checked with the body
    if wishes.priority is None:
        return 0
    try:
        priority = int(wishes.priority[:12])
    except ValueError:
        priority = 2**31
    if not -(2**31) <= priority < 2**31 or len(wishes.priority) > 11:
        raise InvalidRequest(f"{PRIORITY_HEADER} must be a whole number of 32 bits", param=PRIORITY_HEADER)
    return priority


def _deadline_ms(fields: Fields, wishes: Wishes) -> float | None:
    deadline, name = fields.ttft_deadline_ms, "ttft_deadline_ms"
    if deadline is None and wishes.ttft_deadline_ms is not None:
        name = DEADLINE_HEADER
        try:
            deadline = float(wishes.ttft_deadline_ms[:32])
        except ValueError:
            raise InvalidRequest(f"{name} must be a number of milliseconds", param=name) from None
    if deadline is not None and not (isfinite(deadline) and 0.0 < deadline <= MAX_DEADLINE_MS):
        raise InvalidRequest(f"{name} must be more than 0 and at most {MAX_DEADLINE_MS:.0f} milliseconds", param=name)
    return deadline


def _class(tier: str | None) -> str:
    if tier is None:
        return DEFAULT_CLASS
    if tier not in TIERS:
        raise InvalidRequest(f"service_tier must be one of {', '.join(TIERS)}, not {tier[:32]!r}", param="service_tier")
    return TIERS[tier]


def _tenant(user: str | None) -> str:
    if user is None:
        return DEFAULT_TENANT
    if len(user) > MAX_USER_CHARS:
        raise InvalidRequest(f"user must be at most {MAX_USER_CHARS} characters, not {len(user)}", param="user")
    return user
