"""What a change of settings would do to the run of a log: the same requests simulated as they were, and then with it.

The first simulation is the measure of all others. It is held against the log, and how far it is off says what the
numbers are worth; the effect of a change is a difference between two simulations, in which much of that error cancels.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from evenflow.core.errors import EvenflowError
from evenflow.core.events import ConfigChanged, Event
from evenflow.diagnose.effect import EVERYBODY, Agreement, Basis, Effect
from evenflow.diagnose.finding import Change
from evenflow.replay.result import Result
from evenflow.simulate.changed import changed
from evenflow.simulate.config import SimulationConfig
from evenflow.simulate.cost import StepCost
from evenflow.simulate.cost_settings import different_settings
from evenflow.simulate.effects import SHOWN, THROUGHPUT, Errors, effect_of
from evenflow.simulate.logged_run import logged_run
from evenflow.simulate.outcome import Simulation
from evenflow.simulate.run import simulate
from evenflow.simulate.validate import Validation, validation_of


class SimulatedRun:
    """A log's run, simulated. It is a `WhatIf`. `fitted_here`: the cost was fitted to this log and to nothing else."""

    def __init__(self, events: Sequence[Event], cost: StepCost, *, fitted_here: bool, seed: int = 0) -> None:
        """Raises RecordedError for a log that does not say enough, ConfigError for a cost that does not fit to it."""
        self._run = logged_run(events)
        self._cost = cost
        self._seed = seed
        self._fitted_here = fitted_here
        done = self._simulate(self._run.config)
        self._validation = validation_of(events, self._run, done, cost)
        self._before = self._result(done)
        self._errors = _errors(self._validation)
        started = next(event for event in events if isinstance(event, ConfigChanged) and event.limits)
        self._other_settings = different_settings(cost, dict(started.settings))

    def __call__(self, change: Change) -> Effect:
        try:
            done = self._simulate(changed(self._run.config, change.settings))
        except EvenflowError as error:
            return Effect(unknown=str(error))
        return effect_of(
            self._before,
            self._result(done),
            self._errors,
            share_outside=done.num_steps_outside_hull / done.num_steps if done.num_steps else 0.0,
            notes=self._own_notes(done),
        )

    @property
    def basis(self) -> Basis:
        return Basis(tuple(self._sentences()), tuple(_agreement(self._validation)))

    def _simulate(self, config: SimulationConfig) -> Simulation:
        return simulate(self._run.plans, self._cost, config, seed=self._seed)

    def _result(self, done: Simulation) -> Result:
        """All requests count, the first ones too: what is compared is not a warm server, it is this run."""
        records = self._run.without_the_interrupted(done.result.records)
        return replace(done.result, records=records, warm_up_seconds=0.0)

    def _own_notes(self, done: Simulation) -> tuple[str, ...]:
        return done.notes[len(self._cost.notes) :]

    def _sentences(self) -> Iterator[str]:
        found, identity = self._validation, self._cost.identity
        if self._fitted_here:
            yield "simulated with a cost that was fitted to this log itself; one of `evenflow calibrate` knows more"
        else:
            yield f"simulated with a cost {identity.kind.value}: {identity.description or identity.machine}"
        steps = found.steps
        if steps.mape is not None and steps.bias is not None:
            yield f"it predicts the logged steps within {steps.mape:.1%} in the mean, {steps.bias:+.1%} in all"
        missed = [f"{each.metric} {each.figure}" for each in found.errors if each.met is False]
        if missed:
            yield (
                f"the run simulated as it was is off by more than a simulation should be in {', '.join(missed)}: take "
                "the effects below as directions, not as sizes"
            )
        else:
            yield "the run simulated as it was agrees with the log as well as is asked of a simulation"
        if found.has_changes:
            yield "the policy was changed during the run; the simulation holds on to the first"
        if self._run.num_with_wishes:
            yield (
                f"{self._run.num_with_wishes} requests had a priority or a deadline of their own, of which the "
                "simulation knows nothing"
            )
        if self._other_settings:
            yield f"caution: the cost is of another engine than the log: {'; '.join(self._other_settings)}"
        yield from found.simulation.notes


def _errors(found: Validation) -> Errors:
    errors = {(each.group, f"{each.metric} {each.figure}"): each.share for each in found.errors}
    live = found.live_tokens_per_second
    return {**errors, (EVERYBODY, THROUGHPUT): found.simulated_tokens_per_second / live - 1.0 if live else 0.0}


def _agreement(found: Validation) -> Iterator[Agreement]:
    for each in found.errors:
        if each.group == EVERYBODY and each.metric in SHOWN:
            yield Agreement(f"{each.metric} {each.figure}", "s", each.live, each.simulated)
    yield Agreement(THROUGHPUT, "tokens/s", found.live_tokens_per_second, found.simulated_tokens_per_second)
    yield Agreement("preemptions", "", found.live_preemptions, found.simulated_preemptions)
