"""The one loop, for every world: a queue and a real clock, or a trace and a virtual one.

Commands are taken between steps only, so the core is never touched while a step is decided or runs.
"""

from collections.abc import Callable

from evenflow.engine.core import EngineCore
from evenflow.engine.messages import Inbox, InboxClosed, StepResult


def run(core: EngineCore, inbox: Inbox, deliver: Callable[[StepResult], None]) -> None:
    """Returns when the inbox closes: at once if the other side is gone, else when all work is done."""
    while True:
        try:
            for command in inbox.drain():
                core.accept(command)
        except InboxClosed:
            return
        if core.has_work:
            deliver(core.step())
        elif core.has_news:
            deliver(core.news())
        elif not inbox.wait():
            return
