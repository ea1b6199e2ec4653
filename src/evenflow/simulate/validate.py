"""How near a simulation comes to the live run whose log it is given: the same requests, at the same times, by a cost.

Both sides are measured by the same code (logged_run.py); what HTTP adds is in neither.

A machine that drifts is not what its cost says, and no cost can know when. So there is a second simulation, which is
given the pace that the machine had at each moment (pace.py): what is left of an error then is the model's own. It is
told and judges nothing; whether a demand is met goes by the first, which knows no more than a prediction does.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

import numpy as np

from evenflow.core.events import Event, PolicyChanged, StepRecord
from evenflow.replay.measure import GROUPS, HEADLINE, Metric, values_of
from evenflow.replay.record import Record
from evenflow.simulate.cost import Quality, StepCost
from evenflow.simulate.fit import StepSample, quality_of
from evenflow.simulate.logged_run import LoggedRun, logged_run
from evenflow.simulate.outcome import Simulation
from evenflow.simulate.pace import Pace, Pacing, StreamSteps, without_spells
from evenflow.simulate.run import simulate
from evenflow.simulate.samples import samples_of, timed_samples_of

_LEAST_ABOVE = 5
"""A percentile that fewer observations lie above is not compared."""


@dataclass(frozen=True, slots=True)
class Error:
    """Of one figure, in seconds; `limit` is the share that is asked for, None where none is."""

    group: str
    metric: str
    figure: str
    num_observations: int
    live: float
    simulated: float
    limit: float | None
    least_seconds: float = 0.0

    @property
    def share(self) -> float:
        return self.simulated / self.live - 1.0 if self.live else 0.0

    @property
    def met(self) -> bool | None:
        if self.limit is None:
            return None
        return abs(self.simulated - self.live) <= max(self.limit * self.live, self.least_seconds)


@dataclass(frozen=True, slots=True)
class Paced:
    """The same at the live pace: `errors` have no limit, `steps` are predicted with the pace of their moment."""

    pacing: Pacing
    errors: tuple[Error, ...]
    steps: Quality
    tokens_per_second: float
    preemptions: int


@dataclass(frozen=True, slots=True)
class Validation:
    """`steps` is how well the cost predicts the live steps one by one. `has_changes`: the policy was changed live, and
    the simulation held on to the first. `paced` is None where it was not asked for, or the log does not tell a pace."""

    errors: tuple[Error, ...]
    steps: Quality
    live_tokens_per_second: float
    simulated_tokens_per_second: float
    live_preemptions: int
    simulated_preemptions: int
    num_requests: int
    simulation: Simulation
    has_changes: bool
    live: tuple[Record, ...] = field(repr=False)
    simulated: tuple[Record, ...] = field(repr=False)
    paced: Paced | None = None


# The demands of held-out runs at up to 0.8 of capacity, as shares; TTFT may miss by 10 ms whatever it is.
_LIMITS = {
    ("itl", "mean"): 0.03,
    ("itl", "P99"): 0.05,
    ("tpot", "mean"): 0.03,
    ("tpot", "P99"): 0.05,
    ("e2e", "mean"): 0.03,
    ("e2e", "P99"): 0.06,
    ("ttft", "P50"): 0.10,
    ("ttft", "P95"): 0.10,
    ("ttft", "P99"): 0.10,
}
_TTFT_SECONDS = 0.010
STEP_LIMITS = (0.05, 0.15, 0.01)
"""Of a step's error in the mean and at P95, and of the total time's."""
PREEMPTION_LIMIT = 0.10


def validate(events: Sequence[Event], cost: StepCost, *, seed: int = 0) -> Validation:
    """Raises RecordedError for a log that does not say enough."""
    run = logged_run(events)
    done = simulate(run.plans, cost, run.config, seed=seed, name="validation")
    return replace(validation_of(events, run, done, cost), paced=_paced([(events, run)], cost, seed))


def validate_all(runs: Sequence[Sequence[Event]], cost: StepCost, *, seed: int = 0) -> Validation:
    """Of several runs of one engine together, each simulated with a scatter of its own. Raises RecordedError."""
    read = [(events, logged_run(events)) for events in runs]
    whole = [
        validation_of(events, run, simulate(run.plans, cost, run.config, seed=seed + number, name="validation"), cost)
        for number, (events, run) in enumerate(read)
    ]
    live = [record for each in whole for record in each.live]
    simulated = [record for each in whole for record in each.simulated]
    return replace(
        whole[0],
        errors=tuple(errors_between(live, simulated)),
        steps=quality_of(cost, [sample for run in runs for sample in samples_of(run)], "the steps of these runs"),
        live_tokens_per_second=fmean(each.live_tokens_per_second for each in whole),
        simulated_tokens_per_second=fmean(each.simulated_tokens_per_second for each in whole),
        live_preemptions=sum(each.live_preemptions for each in whole),
        simulated_preemptions=sum(each.simulated_preemptions for each in whole),
        num_requests=sum(each.num_requests for each in whole),
        live=tuple(live),
        simulated=tuple(simulated),
        has_changes=any(each.has_changes for each in whole),
        paced=_paced(read, cost, seed),
    )


def _paced(runs: Sequence[tuple[Sequence[Event], LoggedRun]], cost: StepCost, seed: int) -> Paced | None:
    """Each run at its own pace. None if one of them does not tell it."""
    found = [Pace.of(StreamSteps.of(events, cost), run.start_time) for events, run in runs]
    paces = [pace for pace in found if pace is not None]
    if len(paces) < len(found):
        return None
    left = without_spells(cost, paces)
    live, simulated = list[Record](), list[Record]()
    samples, factors, rates, preemptions = list[StepSample](), list[float](), list[float](), 0
    for number, ((events, run), pace) in enumerate(zip(runs, paces, strict=True)):
        done = simulate(run.plans, left, run.config, seed=seed + number, name="validation", pace=pace)
        records = run.without_the_interrupted(done.result.records)
        live += run.records
        simulated += records
        rates.append(_tokens_per_second(records))
        preemptions += done.num_preemptions
        for start_time, sample in timed_samples_of(events):
            samples.append(sample)
            factors.append(pace(start_time - run.start_time))
    return Paced(
        pacing=Pacing.of(paces),
        errors=tuple(replace(error, limit=None) for error in errors_between(live, simulated)),
        steps=quality_of(cost, samples, "these steps at the live pace", factors),
        tokens_per_second=fmean(rates),
        preemptions=preemptions,
    )


def validation_of(events: Sequence[Event], run: LoggedRun, done: Simulation, cost: StepCost) -> Validation:
    """Of a simulation that was made already, of this run as it was."""
    simulated = run.without_the_interrupted(done.result.records)
    return Validation(
        errors=tuple(errors_between(run.records, simulated)),
        steps=quality_of(cost, list(samples_of(events)), "the steps of this run"),
        live_tokens_per_second=_tokens_per_second(run.records),
        simulated_tokens_per_second=_tokens_per_second(simulated),
        live_preemptions=sum(event.preemptions for event in events if isinstance(event, StepRecord)),
        simulated_preemptions=done.num_preemptions,
        num_requests=len(run.plans),
        simulation=done,
        has_changes=any(isinstance(event, PolicyChanged) for event in events),
        live=run.records,
        simulated=simulated,
    )


def errors_between(live: Sequence[Record], simulated: Sequence[Record]) -> Iterable[Error]:
    """Records of the same requests in the same order."""
    groups: dict[str, tuple[list[Record], list[Record]]] = {"all": (list(live), list(simulated))}
    for was, now in zip(live, simulated, strict=True):
        pair = groups.setdefault(GROUPS.name_of(was.num_prompt_tokens, was.max_tokens), ([], []))
        pair[0].append(was)
        pair[1].append(now)
    order = {name: place for place, name in enumerate(("all", *GROUPS.names))}
    for name in sorted(groups, key=lambda name: order[name]):
        for metric in HEADLINE:
            yield from _errors_of(name, metric, *groups[name])


def _errors_of(group: str, metric: Metric, live: Sequence[Record], simulated: Sequence[Record]) -> Iterable[Error]:
    ours, theirs = values_of(metric, live), values_of(metric, simulated)
    if not len(ours) or not len(theirs):
        return
    figures = [("mean", float(ours.mean()), float(theirs.mean()))]
    figures += [
        (f"P{percent}", float(np.percentile(ours, percent)), float(np.percentile(theirs, percent)))
        for percent in (50, 95, 99)
        if len(ours) * (100 - percent) / 100 >= _LEAST_ABOVE
    ]
    for figure, was, now in figures:
        limit = _LIMITS.get((metric.name, figure)) if group == "all" else None
        least = _TTFT_SECONDS if metric.name == "ttft" else 0.0
        yield Error(group, metric.title, figure, len(ours), was, now, limit, least)


def _tokens_per_second(records: Sequence[Record]) -> float:
    good = [record for record in records if record.ok and record.finished is not None]
    span = max((record.finished or 0.0 for record in good), default=0.0)
    return sum(len(record.chunk_times) for record in good) / span if span else 0.0
