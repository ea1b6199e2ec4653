"""The error tree carries what its handlers need."""

from evenflow.core.errors import (
    ContextOverflow,
    DuplicateRequest,
    EvenflowError,
    InvalidRequest,
    QueueFull,
    RequestError,
)


def test_a_request_error_names_its_field() -> None:
    error = InvalidRequest("top_p must be above 0", param="top_p")
    assert (str(error), error.message, error.param) == ("top_p must be above 0", "top_p must be above 0", "top_p")
    assert RequestError("nothing in particular").param is None


def test_a_full_queue_says_when_to_come_back() -> None:
    error = QueueFull("1000 requests wait", retry_after_seconds=2.5)
    assert error.retry_after_seconds == 2.5
    assert error.param is None


def test_every_refusal_of_a_request_is_one_kind_of_error() -> None:
    for kind in (InvalidRequest, ContextOverflow, DuplicateRequest, QueueFull):
        assert issubclass(kind, RequestError)
        assert issubclass(kind, EvenflowError)
