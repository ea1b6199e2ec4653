"""A result, measured and judged: everything that a report shows."""

from dataclasses import dataclass, replace

from evenflow.replay.measure import Measured, measure
from evenflow.replay.result import Result
from evenflow.replay.slo import Objectives, parse_bounds
from evenflow.replay.verdict import Verdict, judge


@dataclass(frozen=True, slots=True)
class Assessed:
    result: Result
    measured: Measured
    verdict: Verdict


def assess(result: Result) -> Assessed:
    objectives = Objectives(parse_bounds(result.slo)) if result.slo is not None else None
    measured = measure(result.records, objectives, result.warm_up_seconds)
    verdict = judge(result.records, measured, result.loop_lags, result.gave_up, open_loop=result.open_loop)
    return Assessed(result, measured, replace(verdict, cautions=(*verdict.cautions, *result.cautions)))
