"""A cost from the event log of an engine that served: its own steps, in its own traffic."""

from dataclasses import replace

from evenflow.core.events import ConfigChanged, Event, StepRecord
from evenflow.observe.log import EventLog
from evenflow.simulate.cost import Identity, Kind, StepCost
from evenflow.simulate.fit import fit_cost
from evenflow.simulate.machine import this_engine, this_machine
from evenflow.simulate.samples import samples_of

_TRAFFIC = "fitted to traffic: where batch, chunk and context always moved together, it cannot tell them apart"


def cost_of_log(log: EventLog, model: str) -> StepCost:
    """Raises LogError, CostError. That the log was written here is taken on trust: it does not say."""
    events: list[Event] = []
    settings: dict[str, str] = dict(log.header.settings)
    for event in log:
        if isinstance(event, StepRecord):
            events.append(event._replace(scheduled=event.scheduled[:1], emitted=(), left_out=(), doors=()))
        elif isinstance(event, ConfigChanged):
            settings = dict(event.settings)
    said = settings.get("block_size", "")
    block_size = int(said) if said.isascii() and said.isdigit() and len(said) < 10 else None
    last = events[-1] if events else None
    kv_tokens = last.kv_blocks_total * block_size if isinstance(last, StepRecord) and block_size else None
    model = settings.get("model", model)
    identity = Identity(
        Kind.MEASURED, this_machine(), model, this_engine(), f"{model} on {this_machine()}", tuple(settings.items())
    )
    cost = fit_cost(identity, samples_of(events), kv_tokens=kv_tokens)
    return replace(cost, block_size=block_size, notes=(*cost.notes, _TRAFFIC))
