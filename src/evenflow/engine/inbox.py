"""Commands from other threads to the engine loop in this process."""

from collections.abc import Sequence
from threading import Condition

from evenflow.engine.messages import Command, InboxClosed


class QueueInbox:
    """An `Inbox`; `put` and `close` may be called from any thread."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._commands: list[Command] = []
        self._closed = False

    def put(self, command: Command) -> None:
        """A command put after `close` goes nowhere."""
        with self._changed:
            self._commands.append(command)
            self._changed.notify()

    def close(self) -> None:
        """The loop ends after the step it is in, whatever still runs."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def drain(self) -> Sequence[Command]:
        with self._changed:
            if self._closed:
                raise InboxClosed
            commands, self._commands = self._commands, []
        return commands

    def wait(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._commands)
            return not self._closed
