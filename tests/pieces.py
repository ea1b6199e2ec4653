"""Policy pieces that only tests need."""

from collections.abc import Collection
from dataclasses import dataclass

from evenflow.core.policy import FlowId
from evenflow.core.request import Request


@dataclass(frozen=True, slots=True)
class FlowPerTenant:
    """One waiting queue for each tenant; the tenant that has waited since longest ago admits first."""

    name: str = "per-tenant"

    def flow_of(self, request: Request, /) -> FlowId:
        return FlowId(request.tenant)

    def pick(self, flows: Collection[FlowId], /) -> FlowId:
        return next(iter(flows))
