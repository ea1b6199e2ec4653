"""What a calibration makes an engine do, so that batch, chunk and context each go to their ends, and not together.

A long context is dear to make, since every token of it is computed once, and cheap to look at. So a third of the time
goes into a *library* of prompts of many lengths, and every later stream begins with the first so many tokens of one of
them: the prefix cache has their blocks, only a short tail is computed, and a step can have any number of streams at any
contexts, as far as the library goes. In turns of a few seconds,

    build       S streams come, each of a context around L                     prefill of many short tails
    decode      a few steps that only decode
    probe       one more prompt: any context, any new tokens, any step budget  chunks beside decodes
    take down   half of the streams leave; decode, probe; and again until nobody is left; then a probe alone

S, L and the probes go evenly over logarithms (a low-discrepancy sequence), every few turns S or L to its very end. The
order mixes large and small, so that a machine that is slow for a while is not slow for one kind of step alone.

Streams do not share a prompt of the library with each other: what one has read would be in the processor's caches for
the next (16 streams of 1500 tokens are 21 % faster by four prompts than by sixteen, and 9 % by eight).
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from random import Random

from evenflow.core.events import StepRecord
from evenflow.core.ports import Clock
from evenflow.core.request import Request, RequestId, SamplingParams
from evenflow.engine.api import EngineFacts
from evenflow.engine.core import EngineCore
from evenflow.engine.messages import Abort, Add, AskPolicy
from evenflow.simulate.fit import StepSample
from evenflow.simulate.samples import samples_of

LEAST_TOKENS = 16
_MOST_CONTEXT = 16_384
_LIBRARY_SHARE = 0.35  # of the time
_LONGEST_SHARE = 0.2  # of the library's tokens, in its longest prompt
_POOL_SHARE = 0.5  # of the KV memory, for the library
_DECODES = 4
_BUILD_SECONDS = 3.0
_MOST_STEP_SECONDS = 0.6
_OUTPUT_TOKENS = 256
_WARM_UP_STEPS = 12
# Bases of a Halton sequence: three numbers in [0, 1) that fill the cube evenly.
_BASES = (2, 3, 5)


@dataclass(frozen=True, slots=True)
class Turn:
    """So many streams, whose contexts are around this share (on a logarithmic scale) of the longest, beside probes
    under this step budget."""

    num_streams: int
    context_share: float
    budget: int

    def __str__(self) -> str:
        return f"{self.num_streams} streams at {self.context_share:.0%} of the context, steps of {self.budget}"


def turns(max_num_seqs: int, most_batched: int) -> Iterator[Turn]:
    """Without end. Every fifth has all seats taken, every fifth the longest contexts, every tenth so both."""
    for number in count(1):
        batch, context, chunk = (radical_inverse(number, base) for base in _BASES)
        if number % 5 == 2 or number % 10 == 8:
            batch = 1.0
        if number % 5 == 4 or number % 10 == 8:
            context = 1.0
        streams = round(between(1, max_num_seqs, batch))
        budget = round(between(LEAST_TOKENS, most_batched, chunk))
        budget = min(max(budget, streams + LEAST_TOKENS), most_batched)
        yield Turn(streams, context, budget)


def radical_inverse(number: int, base: int) -> float:
    """The digits of a number behind the point, in reverse."""
    share, value = 1.0, 0.0
    while number:
        share /= base
        value += share * (number % base)
        number //= base
    return value


def between(low: float, high: float, share: float) -> float:
    """Evenly on a logarithmic scale."""
    return float(low * (high / low) ** share) if high > low else float(low)


class Driver:
    """Drives a core by hand, and keeps the records of its steps."""

    def __init__(self, core: EngineCore, facts: EngineFacts, seed: int, clock: Clock) -> None:
        self._core = core
        self.facts = facts
        self.rng = Random(seed)
        self._number = 0
        self._clock = clock
        self._live: list[RequestId] = []
        self._library: list[tuple[int, ...]] = []
        self.records: list[StepRecord] = []
        self._asked = False
        self._busy: set[int] = set()

    @property
    def now(self) -> float:
        return self._clock.now()

    @property
    def has_work(self) -> bool:
        return self._core.has_work

    @property
    def num_live(self) -> int:
        return self.records[-1].running + self.records[-1].waiting if self.records else 0

    @property
    def has_library(self) -> bool:
        return bool(self._library)

    @property
    def longest(self) -> int:
        """The longest context that streams can begin with."""
        return max((len(prompt) for prompt in self._library), default=LEAST_TOKENS)

    # ---- one thing at a time -----------------------------------------------------------------------------------------

    def budget(self, tokens: int) -> None:
        self._asked = True
        tokens = max(1, min(tokens, self.facts.max_num_batched_tokens))
        self._core.accept(AskPolicy(0, json.dumps({"max_num_batched_tokens": tokens}).encode()))

    def tokens(self, num: int) -> tuple[int, ...]:
        """Of random content, so that nothing of it is in the prefix cache."""
        rng, vocab_size = self.rng, self.facts.vocab_size
        return tuple([rng.randrange(vocab_size) for _ in range(num)])

    def add(self, prompt: tuple[int, ...], max_tokens: int = _OUTPUT_TOKENS) -> RequestId:
        self._asked = True
        self._number += 1
        most = self.facts.max_model_len - len(prompt)
        sampling = SamplingParams(max_tokens=max(1, min(max_tokens, most)), temperature=0.0, ignore_eos=True)
        request = Request(RequestId(f"calibrate-{self._number}"), prompt, sampling, self.now)
        self._core.accept(Add(request))
        self._live.append(request.id)
        return request.id

    def leave(self, request_ids: list[RequestId]) -> None:
        self._asked = True
        gone = set(request_ids)
        for request_id in request_ids:
            self._core.accept(Abort(request_id))
        self._core.news()
        self._live = [each for each in self._live if each not in gone]

    def leave_all(self) -> None:
        self.leave(list(self._live))

    def step(self) -> None:
        if self._asked:  # what was asked of the core before this step took time after the last one
            self._busy.add(len(self.records) - 1)
            self._asked = False
        result = self._core.step()
        self.records += [event for event in result.events if isinstance(event, StepRecord)]

    def take_samples(self) -> list[StepSample]:
        """Of all steps since the last time. Where the driver did something between two steps, the gap is not the
        loop's."""
        records, self.records = self.records, []
        samples = samples_of(records)
        busy, self._busy = self._busy, set()
        return [each._replace(gap_seconds=None) if number in busy else each for number, each in enumerate(samples)]

    def warm_up(self) -> None:
        """The first steps of all are slow."""
        self.add(self.tokens(max(1, min(64, self.facts.max_model_len - _WARM_UP_STEPS - 1))), _WARM_UP_STEPS)
        self.run_out()
        self.take_samples()

    def run_out(self) -> None:
        while self._core.has_work:
            self.step()
        self._live.clear()

    # ---- the library -------------------------------------------------------------------------------------------------

    def fill_library(self, seconds: float) -> None:
        """One long prompt, two of half its length, and so on, as many as a third of the time computes."""
        facts = self.facts
        most = self._tokens_per_second() * seconds * _LIBRARY_SHARE
        most = min(most, _POOL_SHARE * facts.num_kv_blocks * facts.block_size)
        longest = int(min(_MOST_CONTEXT, facts.max_model_len - 2 * _OUTPUT_TOKENS, _LONGEST_SHARE * most))
        longest = max(LEAST_TOKENS, longest)
        until, total, copies = self.now + 2.0 * seconds * _LIBRARY_SHARE, 0, 1
        length = longest
        self.budget(facts.max_num_batched_tokens)
        while length >= LEAST_TOKENS and total + length <= max(most, longest) and self.now < until:
            for _ in range(copies):
                if total + length > max(most, longest) or self.now >= until:
                    break
                prompt = self.tokens(length)
                self.add(prompt, 1)
                self.run_out()
                self._library.append(prompt)
                total += length
            length, copies = length // 2, copies * 2

    def _tokens_per_second(self) -> float:
        """From one step, the last of several alike: the first of all is slow."""
        facts = self.facts
        length = max(1, min(facts.max_num_batched_tokens, facts.max_model_len - 2, 512))
        for _ in range(3):
            self.add(self.tokens(length), 1)
            self.run_out()
        record = self.records[-1]
        return record.prefill_tokens / max(record.end - record.start, 1e-6)

    def prompt_of(self, context: int, num_new: int, place: int) -> tuple[int, ...]:
        """Up to `context` tokens that the cache has, of the library's prompt at this place, and so many that it has
        not."""
        most = self.facts.max_model_len - 1
        known = self._library[place][:context] if place < len(self._library) else ()
        return (*known, *self.tokens(max(1, num_new)))[:most]

    # ---- a turn ------------------------------------------------------------------------------------------------------

    def run(self, turn: Turn, until: float) -> None:
        facts, rng = self.facts, self.rng
        until = min(until, self.now + 4.0 * _BUILD_SECONDS)
        streams = self._build(turn)
        while True:
            self._decode(_DECODES)
            for _ in range(2):
                if self.num_live < facts.max_num_seqs:
                    self._probe(turn)
            if not streams or self.now >= until:
                break
            rng.shuffle(streams)
            keep = len(streams) // 2
            self.leave(streams[keep:])
            streams = streams[:keep]
        self.leave_all()

    def _build(self, turn: Turn) -> list[RequestId]:
        """Until all streams decode, or have taken too long to come."""
        rng, began = self.rng, self.now
        self.budget(max(turn.budget, self.facts.max_num_batched_tokens // 2))
        streams: list[RequestId] = []
        aim = between(LEAST_TOKENS, self.longest, turn.context_share)
        for place in range(turn.num_streams):  # the library's longest prompts come first
            context = round(aim * rng.uniform(0.6, 1.0))
            streams.append(self.add(self.prompt_of(context, rng.randint(1, 2 * self.facts.block_size), place)))
            if place % 4 == 3 or place == turn.num_streams - 1:
                self.step()
                if self._is_too_long(began):
                    break
        while self.has_work and self.records[-1].prefill_tokens and not self._is_too_long(began):
            self.step()
        return streams

    def _is_too_long(self, began: float) -> bool:
        last = self.records[-1]
        return self.now - began > _BUILD_SECONDS or last.end - last.start > _MOST_STEP_SECONDS

    def _decode(self, num_steps: int) -> None:
        for _ in range(num_steps):
            if not self.has_work:
                return
            self.step()

    def _probe(self, turn: Turn) -> None:
        """At most three chunks of one prompt; a longer one leaves."""
        facts, rng = self.facts, self.rng
        budget = round(between(LEAST_TOKENS, facts.max_num_batched_tokens, rng.random()))
        budget = max(turn.budget if rng.random() < 0.5 else budget, self.num_live + LEAST_TOKENS)
        self.budget(budget)
        context = round(between(LEAST_TOKENS, self.longest, rng.random()))
        if rng.random() < 0.2:
            context = 0
        num_new = round(between(1, 2 * facts.max_num_batched_tokens, rng.random()))
        fitting = sum(len(prompt) >= context for prompt in self._library)
        probe = self.add(self.prompt_of(context, num_new, rng.randrange(max(1, fitting))), 2)
        for _ in range(3):
            if not self.has_work:
                break
            self.step()
            if not self.records[-1].prefill_tokens:
                break
        self.leave([probe])
