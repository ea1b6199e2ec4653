"""Requests of a load run in any state, as the client keeps them."""

from array import array

from evenflow.replay.request import Failure, ObservedRequest, PlannedRequest, Reason


def planned(index: int, *, prompt: int = 10, output: int = 4) -> ObservedRequest:
    """Not sent yet; it is to be at second `index`."""
    return ObservedRequest(PlannedRequest(index, f"demo-{index:02d}", index, prompt, output), float(index))


def sent(index: int, *, tokens: int = 0, prompt: int = 10, output: int = 4) -> ObservedRequest:
    """`tokens` came, a second apart, the first after half a second."""
    request = planned(index, prompt=prompt, output=output)
    request.sent = request.intended
    request.chunk_times = array("d", (request.intended + 0.5 + place for place in range(tokens)))
    request.chunk_events = array("l", [1] * tokens)
    return request


def done(index: int, *, output: int = 4, prompt: int = 10) -> ObservedRequest:
    request = sent(index, tokens=output, output=output, prompt=prompt)
    request.finished, request.finish_reason = request.chunk_times[-1], "length"
    request.num_output_tokens = output
    return request


def cut(index: int, *, tokens: int = 0) -> ObservedRequest:
    request = sent(index, tokens=tokens)
    request.finished = request.intended + 100.0
    request.failure = Failure(Reason.INTERRUPTED, "the run ended")
    return request


def failed(index: int) -> ObservedRequest:
    request = sent(index)
    request.finished = request.intended + 1.0
    request.failure = Failure(Reason.HTTP, "HTTP 503: no")
    return request
