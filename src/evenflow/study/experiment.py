"""What an experiment of the study is: a question, a table, a plot, and one sentence that the numbers must bear out.

The sentence is made of the numbers, and says something that could have come out otherwise: `holds` is the predicate
behind it. Each file of this package that measures is one experiment; table.py lists them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from evenflow.report.charts import Chart
from evenflow.study.lab import Lab


@dataclass(frozen=True, slots=True)
class Plot:
    """`x_title` says what is on the x axis."""

    name: str
    chart: Chart
    x_title: str


@dataclass(frozen=True, slots=True)
class Finding:
    """`rows` have a text for each of `columns`. `setting` says what was run, in a sentence.

    A load may be too small to bring about what the experiment is about. Then nothing is `shown`: the sentence says so,
    and which size would do.
    """

    setting: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    plots: tuple[Plot, ...]
    sentence: str
    holds: bool
    shown: bool = True

    @property
    def caveat(self) -> str | None:
        """What a reader of the sentence must know."""
        if not self.shown:
            return "At this size the experiment did not come to what it studies."
        return None if self.holds else "These numbers do not bear the claim out."


class Experiment(NamedTuple):
    """`live` says whether a lab that cannot choose its hardware can run it."""

    name: str
    question: str
    measure: Callable[[Lab], Finding]
    live: bool = True


def ratio(value: float) -> str:
    return f"{value:.2f}×"


def seconds(value: float) -> str:
    if value >= 1.0:
        return f"{value:.3g} s"
    return f"{value * 1e3:.3g} ms"
