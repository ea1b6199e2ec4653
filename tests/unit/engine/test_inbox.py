"""Commands from other threads."""

import threading

import pytest

from evenflow.core.request import RequestId
from evenflow.engine.inbox import QueueInbox
from evenflow.engine.messages import Abort, InboxClosed

A, B = Abort(RequestId("a")), Abort(RequestId("b"))


def test_commands_come_once_and_in_order() -> None:
    inbox = QueueInbox()
    assert list(inbox.drain()) == []
    inbox.put(A)
    inbox.put(B)
    assert list(inbox.drain()) == [A, B]
    assert list(inbox.drain()) == []


def test_waiting_ends_when_a_command_comes_from_another_thread() -> None:
    inbox = QueueInbox()
    sender = threading.Thread(target=inbox.put, args=(A,))
    sender.start()
    assert inbox.wait()
    assert list(inbox.drain()) == [A]
    sender.join()


def test_closing_ends_waiting_and_leaves_nothing_to_drain() -> None:
    inbox = QueueInbox()
    inbox.put(A)
    closer = threading.Thread(target=inbox.close)
    closer.start()
    closer.join()
    assert not inbox.wait()
    with pytest.raises(InboxClosed):
        inbox.drain()
