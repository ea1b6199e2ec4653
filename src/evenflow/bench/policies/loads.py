"""Requests of given lengths, and what became of them: what every experiment with a clock needs."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from random import Random

import numpy as np

from evenflow.bench.policies.play import Played, play
from evenflow.core.request import Request, RequestId, SamplingParams
from evenflow.engine.core import EngineCore
from evenflow.observe.fold import spans_of
from evenflow.observe.spans import RequestSpan
from evenflow.workload.peer_format import PeerRequest


def request(
    name: str,
    prompt_tokens: int,
    output_tokens: int,
    rng: Random,
    vocab_size: int,
    *,
    at: float = 0.0,
    tenant: str = "default",
    service_class: str = "default",
) -> Request:
    """Greedy, of its full length, with a prompt that no other request begins with."""
    return Request(
        RequestId(name),
        tuple(rng.randrange(vocab_size) for _ in range(prompt_tokens)),
        SamplingParams(max_tokens=output_tokens, temperature=0.0, ignore_eos=True),
        arrival_time=at,
        tenant=tenant,
        service_class=service_class,
    )


def w1_load(workload: Sequence[PeerRequest], number: int) -> list[Request]:
    """All at once, greedy, of full length; `number` makes the ids new."""
    sampling = SamplingParams(max_tokens=1, temperature=0.0, ignore_eos=True)
    return [
        Request(
            RequestId(f"w1-{number}-{index}"),
            tuple(each.prompt_token_ids),
            replace(sampling, max_tokens=each.max_tokens),
            arrival_time=0.0,
        )
        for index, each in enumerate(workload)
    ]


def spans(played: Played) -> dict[str, RequestSpan]:
    return {str(span.request_id): span for span in spans_of(played.events)}


def gaps_between(found: Iterable[RequestSpan], begin: float, end: float) -> list[float]:
    """Inter-token gaps that ended in a stretch of time, in seconds."""
    return [
        later - earlier
        for span in found
        for earlier, later in zip(span.token_times, span.token_times[1:], strict=False)
        if begin < later <= end
    ]


def percentile(values: Iterable[float], percent: float) -> float:
    return float(np.percentile(list(values), percent))


def warm_up(core: EngineCore, vocab_size: int, seed: int) -> None:
    """Play `warm_up_load`."""
    play(core, warm_up_load(vocab_size, seed))


def warm_up_load(vocab_size: int, seed: int) -> list[Request]:
    """What touches the memory, and shows a policy that learns step times chunks and batches of many sizes."""
    rng = Random(-1 - seed)
    sizes = [(64, 40), (200, 60), (900, 20), (400, 60), (64, 60), (1200, 10), (300, 60), (64, 60)]
    return [request(f"warm-{seed}-{i}", p, o, rng, vocab_size) for i, (p, o) in enumerate(sizes)]


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.0f} ms"
