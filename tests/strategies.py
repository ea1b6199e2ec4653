"""Random workloads that reach what schedulers get wrong.

Requests share prefixes, repeat each other and continue each other's answers; they come in bursts and after everybody
has left; pools, budgets and seats are tiny, so that chunks end inside blocks and memory runs out. One generator serves
both Hypothesis (which shrinks) and seeded sweeps (which must see every behaviour); only the source of choices differs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Protocol, TypeVar

from hypothesis import strategies as st

from evenflow.core.policy.spec import ClassSpec, PolicySpec
from evenflow.core.request import Request, RequestId, SamplingParams
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
    host_blocks: int
    prefix_caching: bool
    policy: PolicySpec

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
            host_blocks=self.host_blocks,
            prefix_caching=self.prefix_caching,
            policy=self.policy,
        )


@dataclass(frozen=True, slots=True)
class Scenario:
    shape: Shape
    requests: tuple[Request, ...]
    aborts: tuple[Abort, ...]

    def world(self) -> World:
        world = self.shape.world().submit(*self.requests)
        for abort in self.aborts:
            world.abort(abort.request_id, at=abort.time, in_flight=abort.in_flight)
        return world

    def play(self) -> World:
        return self.world().run()


def _plain(choices: Choices) -> PolicySpec:
    return PolicySpec(
        order=choose(choices, ["fcfs", "priority"]),
        fairness=choose(choices, ["none", "none", "vtc"]),
        preemption=_preemption(choices),
    )


def _preemption(choices: Choices) -> str:
    return choose(choices, ["recompute", "swap", "swap", "auto"])


def _classes(choices: Choices) -> tuple[ClassSpec, ...]:
    kind = choose(choices, ["equal", "equal", "ranked", "quotas"])
    if kind == "equal":
        return PolicySpec().classes
    if kind == "ranked":
        return (ClassSpec("interactive", rank=0), ClassSpec("default", rank=1), ClassSpec("batch", rank=2))
    share = choices.integer(0, 4) / 10
    return (
        ClassSpec("interactive", rank=0, guaranteed_seats=share, guaranteed_kv=choices.integer(0, 3) / 10),
        ClassSpec("default", rank=choose(choices, [1, 0])),
        ClassSpec("batch", rank=2, guaranteed_seats=choices.integer(0, 3) / 10, max_seats=0.5, max_kv=0.8),
    )


def any_policy(choices: Choices) -> PolicySpec:
    """Any composition of pieces, with small numbers."""
    least = choices.integer(0, 4) / 10
    return PolicySpec(
        order=choose(choices, ["fcfs", "priority", "shortest-prompt", "deadline"]),
        max_overtake=float(choices.integer(0, 20)),
        overtake_per_token=choices.integer(0, 8) / 4,
        fairness=choose(choices, ["none", "vtc"]),
        tenant_weights=choose(choices, [(), (("other", 2.0),)]),
        interleave=choose(choices, ["decode-first", "prefill-first", "in-order", "shared"]),
        max_skipped_steps=choices.integer(1, 4),
        min_prefill_share=least,
        max_prefill_share=least + choices.integer(0, 6) / 10,
        chunking=choose(choices, ["chunked", "chunked", "whole"]),
        budget=choose(choices, ["fixed", "fixed", "itl-target"]),
        itl_target=choose(choices, [2.0, 0.5]),
        min_itl_prefill_share=choices.integer(0, 4) / 8,
        min_prefill_tokens=choices.integer(1, 4),
        long_prompts=choose(choices, ["unlimited", "limited"]),
        long_prompt_tokens=choices.integer(3, 12),
        max_long_prefills=choices.integer(1, 2),
        long_prompt_share=choices.integer(0, 4) / 4,
        min_long_prompt_tokens=choices.integer(1, 3),
        reserve=choose(choices, ["prompt", "prompt", "expected", "max"]),
        max_backfill=choices.integer(0, 3),
        preemption=_preemption(choices),
        scope=choose(choices, ["continuous", "continuous", "continuous", "static"]),
        classes=_classes(choices),
    )


def _shape(choices: Choices, policy: PolicySpec) -> Shape:
    return Shape(
        blocks=choices.integer(2, 14),
        block_size=choose(choices, [4, 2, 3, 1, 8]),
        budget=choices.integer(2 if policy.interleave == "shared" else 1, 20),
        seqs=choices.integer(1, 6),
        watermark=choose(choices, [0, 0, 1, 2]),
        host_blocks=choices.integer(0, 14),
        prefix_caching=choose(choices, [True, True, True, False]),
        policy=policy,
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


def on_a_tight_budget(scenario: Scenario) -> Scenario:
    """The same with two tokens a step, so that some who run get none: chance alone seldom makes it so."""
    return replace(scenario, shape=replace(scenario.shape, budget=2))


def scenario(choices: Choices, policy: PolicySpec | None = None) -> Scenario:
    """Under this policy; if none is given, under a plain one in which everybody is of one class."""
    shape = _shape(choices, _plain(choices) if policy is None else policy)
    names = ["default"] if policy is None else ["default", "interactive", "batch"]
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
                service_class=choose(choices, names),
                ttft_deadline=None if policy is None else _deadline(choices, time),
            )
        )
    aborts = tuple(_abort(choices, requests) for _ in range(choose(choices, [0, 0, 1, 3])))
    return Scenario(shape, tuple(requests), aborts)


def _deadline(choices: Choices, time: float) -> float | None:
    patience = choose(choices, [None, None, None, 1, 8, 40])
    return None if patience is None else time + patience


def _abort(choices: Choices, requests: Sequence[Request]) -> Abort:
    request = choose(choices, requests)
    return Abort(request.id, request.arrival_time + choices.integer(0, 15), choose(choices, [False, True]))


@dataclass(frozen=True, slots=True)
class _Drawn:
    draw: st.DrawFn

    def integer(self, low: int, high: int, /) -> int:
        return self.draw(st.integers(low, high))


@st.composite
def scenarios(draw: st.DrawFn, policy: PolicySpec | None = None) -> Scenario:
    return scenario(_Drawn(draw), policy)


@st.composite
def composed(draw: st.DrawFn) -> Scenario:
    """Under any composition of pieces."""
    choices = _Drawn(draw)
    return scenario(choices, any_policy(choices))
