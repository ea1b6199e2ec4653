"""Policy pieces that only tests need."""

from collections.abc import Collection
from dataclasses import dataclass

from evenflow.core.plan import WaitReason
from evenflow.core.policy import FlowId, TokenSplit
from evenflow.core.request import Request


@dataclass(frozen=True, slots=True)
class FlowPerTenant:
    """One waiting queue for each tenant; the tenant that has waited since longest ago admits first."""

    name: str = "per-tenant"

    def flow_of(self, request: Request, /) -> FlowId:
        return FlowId(request.tenant)

    def pick(self, flows: Collection[FlowId], /) -> FlowId:
        return next(iter(flows))


@dataclass(frozen=True, slots=True)
class OneEach:
    """One token for decodes and one for prefills, however many could run."""

    name: str = "one-each"

    def split(self, budget: int, num_decodes: int, /) -> TokenSplit:
        return TokenSplit(1, 1, WaitReason.PREFILL_SHARE)
