"""The study as a document: `study.md` with a table, a plot and a sentence for each experiment, the plots beside it."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from evenflow.core.errors import EvenflowError
from evenflow.report.chart_file import svg_file
from evenflow.study.experiment import Experiment, Finding

PLOTS = "study"


class DocumentError(EvenflowError):
    """The document cannot be written; the message names the file."""


Done = tuple[Experiment, Finding]


def write_document(folder: Path, lab: str, done: Sequence[Done]) -> Path:
    path = folder / "study.md"
    try:
        (folder / PLOTS).mkdir(parents=True, exist_ok=True)
        for _, finding in done:
            for plot in finding.plots:
                (folder / PLOTS / f"{plot.name}.svg").write_text(svg_file(plot.chart, plot.x_title), encoding="utf-8")
        path.write_text("\n".join(document(lab, done)) + "\n", encoding="utf-8")
    except OSError as error:
        raise DocumentError(f"cannot write {error.filename or path}: {error.strerror}") from error
    return path


def document(lab: str, done: Sequence[Done]) -> Iterator[str]:
    yield "# What scheduling does: ten experiments"
    yield ""
    yield f"Made by `evenflow study`; do not edit. Run on: {lab}."
    yield ""
    yield "Each experiment is a file of `src/evenflow/study/`; its sentence is made of its numbers, and a test checks"
    yield "that those of a smaller load still bear it out."
    for number, (experiment, finding) in enumerate(done, start=1):
        yield ""
        yield f"## {number}. {experiment.question}"
        yield ""
        yield f"**{finding.sentence}**"
        if finding.caveat is not None:
            yield ""
            yield f"*{finding.caveat}*"
        yield ""
        yield f"{finding.setting[0].upper()}{finding.setting[1:]}. (`evenflow study {experiment.name}`)"
        yield ""
        for plot in finding.plots:
            yield f"![{plot.chart.title}]({PLOTS}/{plot.name}.svg)"
        yield ""
        yield f"| {' | '.join(finding.columns)} |"
        yield f"|{'---|' * len(finding.columns)}"
        for row in finding.rows:
            yield f"| {' | '.join(row)} |"
