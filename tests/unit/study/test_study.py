"""The study: every sentence is borne out by the numbers of a small version, and could have come out otherwise."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from evenflow.cli.study import DEFAULT_COST
from evenflow.report.charts import Chart, Series
from evenflow.simulate.catalogue import find_cost
from evenflow.study import ageing, chunk_size, preemption, static_batching
from evenflow.study.document import write_document
from evenflow.study.experiment import Experiment, Finding, Plot
from evenflow.study.lab import Lab, Played
from evenflow.study.simulated_lab import SimulatedLab
from evenflow.study.table import EXPERIMENTS
from evenflow.tune.settings import Settings
from evenflow.workload.trace import TraceRequest

SMALL = 0.25
DOCS = Path(__file__).parents[3] / "docs"


def lab(size: float = SMALL) -> SimulatedLab:
    return SimulatedLab(find_cost(DEFAULT_COST), size=size)


@pytest.mark.slow
@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda experiment: experiment.name)
def test_a_small_version_still_bears_the_sentence_out(experiment: Experiment) -> None:
    finding = experiment.measure(lab())
    assert finding.holds, (finding.sentence, finding.rows)
    assert all(len(row) == len(finding.columns) for row in finding.rows)


def test_a_long_prompt_in_pieces_holds_no_stream_up() -> None:
    finding = chunk_size.measure(lab())
    assert finding.holds, finding.rows


@dataclass(frozen=True, slots=True)
class Indifferent:
    """A lab in which the policy makes no difference."""

    of: SimulatedLab
    name: str = "indifferent"

    @property
    def max_num_seqs(self) -> int:
        return 16

    @property
    def max_num_batched_tokens(self) -> int:
        return self.of.max_num_batched_tokens

    def count(self, requests: int) -> int:
        return 60

    def tokens(self, tokens: int) -> int:
        return max(1, tokens // 8)

    def play(self, load: Sequence[TraceRequest], settings: Settings, *, replicas: int = 1) -> Played:
        return self.of.play(load, replace(settings, policy="vllm", policy_set=()))

    def with_host_memory(self, seconds_per_block: float) -> Lab | None:
        return None


@pytest.mark.parametrize("measure", [static_batching.measure, ageing.measure], ids=["static-batching", "ageing"])
def test_where_nothing_makes_a_difference_no_sentence_holds(measure) -> None:  # type: ignore[no-untyped-def]
    assert not measure(Indifferent(lab())).holds


def test_without_a_preemption_nothing_is_said_of_preemptions_but_which_size_has_some() -> None:
    finding = preemption.measure(lab(0.1))
    assert not finding.holds
    assert finding.caveat == "At this size the experiment did not come to what it studies."
    assert finding.setting.endswith("for 40 requests at once: 0 preemptions in all runs together")
    told = re.fullmatch(r"No .* these 40; there are preemptions with (.*) \(--size (.*)\)\.", finding.sentence)
    assert told is not None
    assert lab(float(told[2])).count(400) == int(told[1]) > 40


def test_where_no_size_would_do_another_device_is_named() -> None:
    vast = lab(0.1)
    finding = preemption.measure(replace(vast, cost=replace(vast.cost, kv_tokens=2**24)))
    assert finding.sentence.endswith("The experiment wants a device of less KV memory (--cost).")


def test_the_document_has_table_plot_and_sentence(tmp_path: Path) -> None:
    chart = Chart("a < b", (Series("one & only", (1.0, 2.0), (3.0, 4.0)), Series("dots", (1.5,), (3.5,), dots=True)))
    finding = Finding("two runs", ("x", "y"), (("1", "3"), ("2", "4")), (Plot("p", chart, "x"),), "It rises.", False)
    path = write_document(tmp_path, "a lab", [(Experiment("name", "Why?", lambda lab: finding), finding)])
    text = path.read_text()
    for part in ("## 1. Why?", "**It rises.**", "| 2 | 4 |", "study/p.svg", "do not bear", "Two runs."):
        assert part in text
    svg = ElementTree.fromstring((tmp_path / "study" / "p.svg").read_text())
    said = {element.text for element in svg.iter() if element.text}
    assert {"a < b", "one & only", "x"} <= said
    assert len(list(svg.iter("{http://www.w3.org/2000/svg}circle"))) == 1


def test_the_document_in_the_repository_has_every_experiment() -> None:
    text = (DOCS / "study.md").read_text()
    for experiment in EXPERIMENTS:
        assert experiment.question in text
        assert f"(`evenflow study {experiment.name}`)" in text
    assert "do not bear" not in text
    plots = {line.split("(")[1].rstrip(")") for line in text.splitlines() if line.startswith("![")}
    assert len(plots) >= len(EXPERIMENTS)
    assert all((DOCS / plot).exists() for plot in plots)
