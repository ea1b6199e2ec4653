"""Calibration: a live engine is driven through steps of every kind, and a cost is fitted to what they took.

Traffic alone would not do: in it a large batch comes with long contexts and full chunks, and a fit could not tell one
from the other. So they are moved independently (excite.py). The last part of the time is a held-out run, of requests
that come by chance, under another budget: it says how good the fit is and is not part of it.
"""

from collections.abc import Callable
from dataclasses import replace
from math import log

from evenflow.core.ports import Clock
from evenflow.engine.api import EngineFacts
from evenflow.engine.build import build_core
from evenflow.engine.clock import MonotonicClock
from evenflow.engine.config import EngineConfig
from evenflow.engine.core import EngineCore
from evenflow.simulate.cost import Identity, Kind, StepCost
from evenflow.simulate.cost_file import CostError
from evenflow.simulate.excite import LEAST_TOKENS, Driver, turns
from evenflow.simulate.fit import StepSample, fit_cost, quality_of
from evenflow.simulate.machine import this_engine, this_machine

MIN_SECONDS = 5.0
MAX_SECONDS = 86_400.0
_HELD_OUT_SHARE = 0.2

Progress = Callable[[float, str], None]
"""Told how much of the time is over, from 0 to 1, and what is done."""


def calibrate(
    config: EngineConfig, *, seconds: float, seed: int = 0, progress: Progress = lambda share, words: None
) -> StepCost:
    """Loads the model, drives it for so long, fits. Raises ConfigError, ModelError, CostError."""
    if not MIN_SECONDS <= seconds <= MAX_SECONDS:
        raise CostError(
            f"a calibration takes {MIN_SECONDS:g} s at least, or too little is seen, and {MAX_SECONDS:g} s at most; "
            f"not {seconds:g}"
        )
    progress(0.0, "loading the model")
    calibration = calibration_of(config, seed)
    learning = 1.0 - _HELD_OUT_SHARE
    calibration.learn(seconds * learning, lambda share, words: progress(share * learning, words))
    progress(learning, "a run that the fit does not see")
    calibration.hold_out(seconds * _HELD_OUT_SHARE)
    cost = calibration.fit()
    progress(1.0, "fitted")
    return cost


def calibration_of(config: EngineConfig, seed: int = 0) -> "Calibration":
    """Loads the model. Raises ConfigError, ModelError."""
    core, facts = build_core(replace(config, policy="vllm", policy_set=(), prefix_caching=True))
    return Calibration(core, facts, config.model, seed)


class Calibration:
    """An engine to be measured, and what was measured so far; a bench has it learn a while, and again later."""

    def __init__(
        self, core: EngineCore, facts: EngineFacts, model: str, seed: int = 0, clock: Clock | None = None
    ) -> None:
        """`core` caches prefixes; `clock` is the one that it goes by, the system's if not given."""
        self._facts = facts
        self._model = model
        self._driver = Driver(core, facts, seed, clock or MonotonicClock())
        self._turns = turns(facts.max_num_seqs, facts.max_num_batched_tokens)
        self._learned: list[StepSample] = []
        self._unseen: list[StepSample] = []

    def learn(self, seconds: float, progress: Progress = lambda share, words: None) -> None:
        """Drives the engine everywhere for so long."""
        driver = self._driver
        begin = driver.now
        if not driver.has_library:
            driver.warm_up()
            progress(0.0, "prompts to share")
            driver.fill_library(seconds)
        for turn in self._turns:
            progress(min(1.0, (driver.now - begin) / seconds), str(turn))
            driver.run(turn, begin + seconds)
            if driver.now >= begin + seconds:
                break
        self._learned += driver.take_samples()

    def hold_out(self, seconds: float) -> None:
        """A run that says how good the fit is, and is not part of it."""
        by_chance(self._driver, self._driver.now + seconds)
        self._unseen += self._driver.take_samples()

    def fit(self) -> StepCost:
        """Raises CostError where too little was measured."""
        facts = self._facts
        kv_tokens = facts.num_kv_blocks * facts.block_size
        cost = fit_cost(identity_of(facts, self._model), self._learned, kv_tokens=kv_tokens)
        quality = quality_of(cost, self._unseen, "a run of other requests under another budget")
        return replace(cost, qualities=(*cost.qualities, quality), block_size=facts.block_size)


def by_chance(driver: Driver, until: float) -> None:
    """Requests of chat-like lengths, some at a time, under a budget that no turn has."""
    facts, rng = driver.facts, driver.rng
    driver.budget(max(LEAST_TOKENS, round(facts.max_num_batched_tokens * 0.6)))
    most = max(1, facts.max_num_seqs // 2)
    longest = max(2, min(facts.max_model_len - 130, 2000))
    live_target = 1
    while driver.now < until:
        if rng.random() < 0.2:
            live_target = rng.randint(1, most)
        if driver.num_live < live_target and rng.random() < 0.3:
            prompt = min(longest, max(4, int(rng.lognormvariate(log(200), 1.0))))
            driver.add(driver.tokens(prompt), rng.randint(16, 128))
        if driver.has_work:
            driver.step()
        else:
            driver.add(driver.tokens(64), 32)
    driver.leave_all()


def identity_of(facts: EngineFacts, model: str) -> Identity:
    return Identity(
        Kind.MEASURED, this_machine(), model, this_engine(), f"{model} on {this_machine()}", tuple(facts.settings)
    )
