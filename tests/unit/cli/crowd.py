"""Requests of a load run in any state, as the client keeps them."""

from evenflow.replay.client import ObservedRequest, PlannedRequest


def planned(index: int, *, prompt: int = 10, output: int = 4) -> ObservedRequest:
    """Not sent yet; it is to be at second `index`."""
    return ObservedRequest(PlannedRequest(f"demo-{index:02d}", index, tuple(range(prompt)), output), float(index))


def sent(index: int, *, tokens: int = 0, prompt: int = 10, output: int = 4) -> ObservedRequest:
    """`tokens` came, a second apart, the first after half a second."""
    request = planned(index, prompt=prompt, output=output)
    request.sent = request.intended
    request.chunk_times = [request.intended + 0.5 + place for place in range(tokens)]
    return request


def done(index: int, *, output: int = 4, prompt: int = 10) -> ObservedRequest:
    request = sent(index, tokens=output, output=output, prompt=prompt)
    request.finished, request.finish_reason = request.chunk_times[-1], "length"
    request.num_output_tokens = output
    return request


def cut(index: int, *, tokens: int = 0) -> ObservedRequest:
    request = sent(index, tokens=tokens)
    request.finished = request.intended + 100.0
    return request


def failed(index: int) -> ObservedRequest:
    request = sent(index)
    request.finished, request.error = request.intended + 1.0, "HTTP 503: no"
    return request
