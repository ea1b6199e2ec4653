"""Live runs of several settings, judged twice: as measured, and with the machine's pace taken off. One of them decides.

    raw         the objective as the clients saw it
    corrected   the same, less what the machine's pace in each run did to it, as far as the runs bear that out (pace.py)

The corrected figures decide if three things hold; which of the two decides is a rule that is set before any run:

    every run has a pace
    pace does not go with the setting, as far as a randomisation test at 5 % can tell: else it would take part of what
        settings differ by for the machine's doing
    the runs bear out that a slow pace is a worse objective: the fitted slope is above 0, told at 95 %

They then estimate the same differences as the raw ones do, with less of the machine in them. Otherwise the raw ones
decide. A dependence that is too small for the test stays in the corrected figures, so both are always told.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log, sqrt
from statistics import fmean

from evenflow.tune.blocked import Blocked, Run, blocked, depends_on_setting
from evenflow.tune.student import student_t

_TOLD = 0.05


@dataclass(frozen=True, slots=True)
class Evidence:
    """`why` says which of the two decides, and why."""

    raw: Blocked
    corrected: Blocked | None
    is_corrected: bool
    why: str

    @property
    def decides(self) -> Blocked:
        return self.corrected if self.is_corrected and self.corrected is not None else self.raw


def evidence_of(runs: Sequence[Run], paces: Sequence[float | None], expected: Sequence[float] | None) -> Evidence:
    """`expected` is what each run's pace should have done to its loss, None if that cannot be said."""
    raw = blocked(runs)
    known = [pace for pace in paces if pace is not None]
    if len(known) < len(paces) or expected is None:
        return Evidence(raw, None, False, "raw decides: not every run has a pace")
    paced = [replace(run, covariate=each) for run, each in zip(runs, expected, strict=True)]
    corrected = blocked(paced, with_covariate=True)
    slope, error = corrected.slope, corrected.slope_error
    assert slope is not None and error is not None
    if not corrected.degrees:
        return Evidence(raw, None, False, "raw decides: too few runs to fit what the pace does")
    chance = depends_on_setting(runs, [log(pace) for pace in known])
    if chance < _TOLD:
        why = f"raw decides: the machine's pace went with the setting (by chance: {chance:.1%})"
        return Evidence(raw, corrected, False, why)
    if slope <= student_t(1 - 2 * _TOLD, corrected.degrees) * error:
        why = f"raw decides: the runs do not bear out that a slow pace is worse (slope {slope:.2f}, error {error:.2f})"
        return Evidence(raw, corrected, False, why)
    why = (
        f"corrected decides: pace does not go with the setting (by chance: {chance:.0%}) and a slow one is worse "
        f"(slope {slope:.2f}, error {error:.2f}; 1 is as simulated)"
    )
    return Evidence(raw, corrected, True, why)


@dataclass(frozen=True, slots=True)
class Noise:
    """`sd` is of the logarithm of a run's objective among runs of equal settings in one round: the machine's alone."""

    sd: float
    degrees: int


def noise_of(runs: Sequence[Run]) -> Noise | None:
    """None if no setting ran twice in a round."""
    groups = defaultdict[tuple[str, int], list[float]](list)
    for run in runs:
        groups[run.setting, run.round].append(run.loss)
    degrees = sum(len(losses) - 1 for losses in groups.values())
    if not degrees:
        return None
    squares = sum((loss - fmean(losses)) ** 2 for losses in groups.values() for loss in losses)
    return Noise(sqrt(squares / degrees), degrees)
