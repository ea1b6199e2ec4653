"""What an engine says of itself once it is there: every resolved setting, and where the memory goes."""

from collections.abc import Iterator

from evenflow.engine.api import EngineFacts
from evenflow.engine.config import format_bytes

_NAME_WIDTH = 24


def announcement(facts: EngineFacts) -> Iterator[str]:
    """Lines for people, without line ends."""
    for name, value in facts.settings:
        yield f"  {name:{_NAME_WIDTH}} {value}"
    for use in facts.memory:
        yield f"  {f'memory: {use.name}':{_NAME_WIDTH}} {format_bytes(use.num_bytes):>9}  {use.detail}"
