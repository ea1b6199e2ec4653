"""Random workloads that reach what schedulers get wrong.

Requests share prefixes, repeat each other and continue each other's answers; they come in bursts and after everybody
has left; pools, budgets and seats are tiny, so that chunks end inside blocks and memory runs out. One generator serves
both Hypothesis (which shrinks) and seeded sweeps (which must see every behaviour); only the source of choices differs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol, TypeVar

from hypothesis import strategies as st

from evenflow.core.policy import ByPriority, Fairness, FirstCome, OneFlow, Order, SchedulingPolicy
from evenflow.core.request import Request, RequestId, SamplingParams
from pieces import FlowPerTenant
from world import VOCAB_SIZE, Abort, World, alone, tokens

T = TypeVar("T")

EOS_TOKEN_IDS = tuple(range(0, VOCAB_SIZE, 11))  # ends about one answer in eleven tokens


class Choices(Protocol):
    def integer(self, low: int, high: int, /) -> int:
        """`low` is the simplest."""
        ...


def choose(choices: Choices, options: Sequence[T]) -> T:
    """The first option is the simplest."""
    return options[choices.integer(0, len(options) - 1)]


@dataclass(frozen=True, slots=True)
class Seeded:
    rng: Random

    def integer(self, low: int, high: int, /) -> int:
        return self.rng.randint(low, high)


@dataclass(frozen=True, slots=True)
class Shape:
    blocks: int
    block_size: int
    budget: int
    seqs: int
    watermark: int
    prefix_caching: bool
    policy: SchedulingPolicy

    @property
    def capacity(self) -> int:
        return self.blocks * self.block_size

    def world(self) -> World:
        return World(
            blocks=self.blocks,
            block_size=self.block_size,
            budget=self.budget,
            seqs=self.seqs,
            watermark=self.watermark,
            prefix_caching=self.prefix_caching,
            policy=self.policy,
        )


@dataclass(frozen=True, slots=True)
class Scenario:
    shape: Shape
    requests: tuple[Request, ...]
    aborts: tuple[Abort, ...]

    def play(self) -> World:
        world = self.shape.world().submit(*self.requests)
        for abort in self.aborts:
            world.abort(abort.request_id, at=abort.time, in_flight=abort.in_flight)
        return world.run()


def _shape(choices: Choices) -> Shape:
    order: Order = FirstCome() if choices.integer(0, 1) == 0 else ByPriority()
    fairness: Fairness = OneFlow() if choices.integer(0, 2) < 2 else FlowPerTenant()
    return Shape(
        blocks=choices.integer(2, 14),
        block_size=choose(choices, [4, 2, 3, 1, 8]),
        budget=choices.integer(1, 20),
        seqs=choices.integer(1, 6),
        watermark=choose(choices, [0, 0, 1, 2]),
        prefix_caching=choose(choices, [True, True, True, False]),
        policy=SchedulingPolicy(order=order, fairness=fairness),
    )


def _sampling(choices: Choices, capacity: int) -> SamplingParams:
    max_tokens = choices.integer(1, min(12, capacity))
    return SamplingParams(
        max_tokens=max_tokens,
        min_tokens=choose(choices, [0, max_tokens // 2]),
        ignore_eos=choose(choices, [True, False]),
    )


def _prompt(choices: Choices, name: str, longest: int, earlier: Sequence[Request]) -> tuple[int, ...]:
    """Its own, a beginning of a common text with a tail, a repetition, or the next turn of a conversation."""
    length = choices.integer(1, longest)
    kind = choose(choices, ["own", "common", "common", "repeat", "continue"])
    if kind == "common":
        return (*tokens("common", choices.integer(0, length)), *tokens(name, length))[:length]
    if earlier and kind in ("repeat", "continue"):
        past = choose(choices, earlier)
        said = past.prompt_token_ids if kind == "repeat" else (*past.prompt_token_ids, *alone(past))
        return (*said, *tokens(name, choices.integer(0, 3)))[:longest]
    return tokens(name, length)


def scenario(choices: Choices) -> Scenario:
    shape = _shape(choices)
    requests: list[Request] = []
    time = 0
    for index in range(choices.integer(1, 9)):
        time += choose(choices, [0, 0, 0, 1, 2, 5, 30])
        name = f"r{index}"
        sampling = _sampling(choices, shape.capacity)
        requests.append(
            Request(
                RequestId(name),
                _prompt(choices, name, shape.capacity + 1 - sampling.max_tokens, requests),
                sampling,
                float(time),
                eos_token_ids=EOS_TOKEN_IDS,
                cache_salt=choose(choices, ["", "", "", "salt"]),
                priority=choices.integer(0, 2),
                tenant=choose(choices, ["", "other"]),
            )
        )
    aborts = tuple(_abort(choices, requests) for _ in range(choose(choices, [0, 0, 1, 3])))
    return Scenario(shape, tuple(requests), aborts)


def _abort(choices: Choices, requests: Sequence[Request]) -> Abort:
    request = choose(choices, requests)
    return Abort(request.id, request.arrival_time + choices.integer(0, 15), choose(choices, [False, True]))


@dataclass(frozen=True, slots=True)
class _Drawn:
    draw: st.DrawFn

    def integer(self, low: int, high: int, /) -> int:
        return self.draw(st.integers(low, high))


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    return scenario(_Drawn(draw))
