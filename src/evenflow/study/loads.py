"""Loads of the study: lengths of real chats or of a given spread, at once or at a share of what the engine can do."""

from collections.abc import Sequence
from dataclasses import replace
from math import log, sqrt
from random import Random

from evenflow.study.lab import Lab
from evenflow.tune.settings import Settings
from evenflow.workload.arrivals import Poisson, retime
from evenflow.workload.formats import azure_excerpt
from evenflow.workload.trace import TraceRequest

SEED = 20261130


def chats(lab: Lab, count: int, seed: int = SEED) -> tuple[TraceRequest, ...]:
    """Lengths of the Azure 2023 conversation trace, drawn with replacement, all at once."""
    rng = Random(seed)
    pairs = [(each.num_prompt_tokens, each.num_output_tokens) for each in azure_excerpt().requests]
    return tuple(
        TraceRequest(0.0, lab.tokens(prompt), lab.tokens(output)) for prompt, output in rng.choices(pairs, k=count)
    )


def spread(count: int, prompt_tokens: int, mean_output: int, variation: float, seed: int = SEED) -> list[TraceRequest]:
    """Log-normal output lengths with that coefficient of variation, at most 16 times the mean, all at once."""
    rng = Random(seed)
    sigma = sqrt(log(1.0 + variation * variation))
    outputs = (rng.lognormvariate(log(mean_output) - sigma * sigma / 2, sigma) for _ in range(count))
    return [TraceRequest(0.0, prompt_tokens, max(1, min(round(output), 16 * mean_output))) for output in outputs]


def at_rate(requests: Sequence[TraceRequest], rate: float, seed: int = SEED) -> tuple[TraceRequest, ...]:
    """Poisson arrivals."""
    return retime(requests, Poisson(rate), Random(seed + 1))


def capacity(lab: Lab, requests: Sequence[TraceRequest], settings: Settings) -> float:
    """Requests per second of these lengths when there is always one waiting."""
    return lab.play([replace(each, arrival_seconds=0.0) for each in requests], settings).requests_per_second
