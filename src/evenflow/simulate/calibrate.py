"""Calibration: a live engine is driven through steps of every kind, and a cost is fitted to what they took.

Traffic alone would not do: in it a large batch comes with long contexts and full chunks, and a fit could not tell one
from the other. So batch, chunk and context are moved independently, in trials of a second or so each:

    batch     1, 2, 4, ... max_num_seqs streams       by how many requests a trial has
    context   16, ... as much as fits                 by how long their prompts are
    chunk     16, ... max_num_batched_tokens          by the policy's step budget, changed between trials

in an order that visits all of each soon (a low-discrepancy sequence), so that a shorter calibration is a coarser one
and not a lopsided one. Each trial prefills (alone at first, then beside those that decode) and then decodes. The last
part of the time is a held-out run, of requests that come by chance, under another budget: it says how good the fit is
and is not part of it.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from math import log
from random import Random

from evenflow.core.events import StepRecord
from evenflow.core.request import Request, RequestId, SamplingParams
from evenflow.engine.api import EngineFacts
from evenflow.engine.build import build_core
from evenflow.engine.clock import MonotonicClock
from evenflow.engine.config import EngineConfig
from evenflow.engine.core import EngineCore
from evenflow.engine.messages import Abort, Add, AskPolicy
from evenflow.simulate.cost import Identity, Kind, StepCost
from evenflow.simulate.cost_file import CostError
from evenflow.simulate.fit import fit_cost, quality_of
from evenflow.simulate.machine import this_engine, this_machine
from evenflow.simulate.samples import samples_of

MIN_SECONDS = 5.0
_HELD_OUT_SHARE = 0.2
_TRIAL_SECONDS = 1.0
_DECODE_STEPS = 16
_WARM_UP_STEPS = 12
_LEAST_TOKENS = 16
# Bases of a Halton sequence: three numbers in [0, 1) that fill the cube evenly.
_BASES = (2, 3, 5)

Progress = Callable[[float, str], None]
"""Told how much of the time is over, from 0 to 1, and what is done."""


@dataclass(frozen=True, slots=True)
class Trial:
    num_streams: int
    num_prompt_tokens: int
    budget: int


def trials(facts: EngineFacts) -> Iterator[Trial]:
    """Without end."""
    longest = max(_LEAST_TOKENS, min(facts.max_model_len - _DECODE_STEPS - 1, 4096))
    kv_tokens = facts.num_kv_blocks * facts.block_size
    for number in count(1):
        batch, context, chunk = (_radical_inverse(number, base) for base in _BASES)
        streams = round(_between(1, facts.max_num_seqs, batch))
        prompt = round(_between(_LEAST_TOKENS, longest, context))
        streams = max(1, min(streams, kv_tokens // (prompt + 2 * _DECODE_STEPS + facts.block_size)))
        budget = round(_between(_LEAST_TOKENS, facts.max_num_batched_tokens, chunk))
        yield Trial(streams, min(prompt, longest), min(max(budget, streams + 1), facts.max_num_batched_tokens))


def _radical_inverse(number: int, base: int) -> float:
    """The digits of a number behind the point, in reverse."""
    share, value = 1.0, 0.0
    while number:
        share /= base
        value += share * (number % base)
        number //= base
    return value


def _between(low: float, high: float, share: float) -> float:
    """Evenly on a logarithmic scale."""
    return float(low * (high / low) ** share) if high > low else float(low)


class _Driver:
    """Drives a core by hand, and keeps the records of its steps."""

    def __init__(self, core: EngineCore, facts: EngineFacts, seed: int) -> None:
        self._core = core
        self._facts = facts
        self._rng = Random(seed)
        self._number = 0
        self._clock = MonotonicClock()
        self._tokens_per_second = 1000.0
        self.records: list[StepRecord] = []

    @property
    def now(self) -> float:
        return self._clock.now()

    def budget(self, tokens: int) -> None:
        change = json.dumps({"max_num_batched_tokens": tokens}).encode()
        self._core.accept(AskPolicy(0, change))

    def add(self, num_prompt_tokens: int, max_tokens: int) -> None:
        """Of random content, so that nothing is found in the prefix cache."""
        self._number += 1
        rng, vocab_size = self._rng, self._facts.vocab_size
        prompt = tuple([rng.randrange(vocab_size) for _ in range(num_prompt_tokens)])
        sampling = SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)
        request = Request(RequestId(f"calibrate-{self._number}"), prompt, sampling, self.now)
        self._core.accept(Add(request))

    def step(self) -> None:
        result = self._core.step()
        self.records += [event for event in result.events if isinstance(event, StepRecord)]

    @property
    def has_work(self) -> bool:
        return self._core.has_work

    def abort_all(self, live: range) -> None:
        for number in live:
            self._core.accept(Abort(RequestId(f"calibrate-{number}")))
        self._core.news()

    def run(self, trial: Trial) -> None:
        """At most about a second: as many streams as the engine has shown that it prefills in that time."""
        self.budget(trial.budget)
        affordable = int(self._tokens_per_second * _TRIAL_SECONDS / 2 / trial.num_prompt_tokens)
        streams = max(1, min(trial.num_streams, affordable))
        first = self._number + 1
        start, before = self.now, len(self.records)
        for _ in range(streams):
            self.add(trial.num_prompt_tokens, 4 * _DECODE_STEPS + streams)
        decodes = 0
        while self.has_work and decodes < _DECODE_STEPS and self.now - start < 2 * _TRIAL_SECONDS:
            self.step()
            decodes += not self.records[-1].prefill_tokens if len(self.records) > before else 0
            if decodes == _DECODE_STEPS // 2:  # and one more prompt, beside the streams
                self.add(trial.num_prompt_tokens, 2 * _DECODE_STEPS)
                decodes += 1
        self._learn_speed(before)
        self.abort_all(range(first, self._number + 1))

    def _learn_speed(self, before: int) -> None:
        prefills = [record for record in self.records[before:] if record.prefill_tokens > record.decode_tokens]
        seconds = sum(record.end - record.start for record in prefills)
        if seconds > 0.0:
            self._tokens_per_second = sum(record.prefill_tokens for record in prefills) / seconds

    def by_chance(self, until: float) -> None:
        """Requests of chat-like lengths, some at a time, under a budget that no trial has."""
        facts, rng = self._facts, self._rng
        self.budget(max(_LEAST_TOKENS, round(facts.max_num_batched_tokens * 0.6)))
        first = self._number + 1
        most = max(1, facts.max_num_seqs // 2)
        longest = max(2, min(facts.max_model_len - 130, 2000))
        live_target = 1
        while self.now < until:
            if rng.random() < 0.2:
                live_target = rng.randint(1, most)
            if self.num_live < live_target and rng.random() < 0.3:
                prompt = min(longest, max(4, int(rng.lognormvariate(log(200), 1.0))))
                self.add(prompt, rng.randint(16, 128))
            if self.has_work:
                self.step()
            else:
                self.add(64, 32)
        self.abort_all(range(first, self._number + 1))

    @property
    def num_live(self) -> int:
        return self.records[-1].running + self.records[-1].waiting if self.records else 0


def calibrate(
    config: EngineConfig, *, seconds: float, seed: int = 0, progress: Progress = lambda share, words: None
) -> StepCost:
    """Loads the model, drives it for so long, fits. Raises ConfigError, ModelError, CostError."""
    if seconds < MIN_SECONDS:
        raise CostError(f"a calibration of {seconds:g} s is too short; give it {MIN_SECONDS:g} s at least")
    progress(0.0, "loading the model")
    core, facts = build_core(replace(config, policy="vllm", policy_set=(), prefix_caching=False))
    driver = _Driver(core, facts, seed)
    driver.add(min(64, facts.max_model_len - _WARM_UP_STEPS - 1), _WARM_UP_STEPS)
    while driver.has_work:
        driver.step()
    driver.records.clear()
    begin = driver.now
    learning = begin + seconds * (1.0 - _HELD_OUT_SHARE)
    for number, trial in enumerate(trials(facts), start=1):
        driver.run(trial)
        said = (
            f"trial {number}: {trial.num_streams} streams of {trial.num_prompt_tokens} tokens, steps of {trial.budget}"
        )
        progress(min(1.0, (driver.now - begin) / seconds), said)
        if driver.now >= learning:
            break
    learned = list(samples_of(driver.records))
    driver.records.clear()
    progress(1.0 - _HELD_OUT_SHARE, "a run that the fit does not see")
    driver.by_chance(driver.now + seconds * _HELD_OUT_SHARE)
    cost = fit_cost(identity_of(facts, config.model), learned, kv_tokens=facts.num_kv_blocks * facts.block_size)
    unseen = quality_of(cost, list(samples_of(driver.records)), "a run of other requests under another budget")
    progress(1.0, "fitted")
    return replace(cost, qualities=(*cost.qualities, unseen), block_size=facts.block_size)


def identity_of(facts: EngineFacts, model: str) -> Identity:
    return Identity(
        Kind.MEASURED, this_machine(), model, this_engine(), f"{model} on {this_machine()}", tuple(facts.settings)
    )
