"""Pages: whole, self-contained, escaped, and right about what they show."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from evenflow.replay.assess import assess
from evenflow.replay.bootstrap import Interval
from evenflow.replay.compare import compare
from evenflow.report.charts import Chart, Scale, Series, cdf
from evenflow.report.compare_page import compare_page, text_rows
from evenflow.report.page import ReportError, write_page
from evenflow.report.replay_page import replay_page
from records import failed, noisy_run, record, result, unsent

_VOID = {"meta", "input", "br", "line", "rect", "polyline"}


class Tree(HTMLParser):
    """Every tag is closed, in the right order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []
        self.counts: dict[str, int] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.counts[tag] = self.counts.get(tag, 0) + 1
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.counts[tag] = self.counts.get(tag, 0) + 1

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in ("script", "style"):
            self.text.append(data)


def parsed(page: str) -> tuple[Tree, str]:
    tree = Tree()
    tree.feed(page)
    assert tree.open == []
    return tree, " ".join(" ".join(tree.text).split())


def test_a_page_shows_the_run() -> None:
    records = [record(i, i * 0.1, service_class="gold", tenant=f"t{i % 2}") for i in range(600)]
    run = result(*records, failed(600, 60.0, detail="HTTP 500: out of memory"), name="my run", slo="ttft=1s")
    tree, text = parsed(replay_page(assess(run)))
    assert tree.counts["svg"] == 8
    for words in (
        "This run is valid, with cautions",
        "1 of 601 requests failed (0.2%) and are in no latency",
        "TTFT 600 100 ms 100 ms 100 ms 100 ms 100 ms",
        "goodput (99.8% meet their SLO)",
        "Service classes",
        "Tenants",
        "1-128 in, 1-32 out 601 1 100 ms",
        "HTTP status 1 HTTP 500: out of memory",
    ):
        assert words in text


def test_a_page_of_nothing_says_so() -> None:
    _, text = parsed(replay_page(assess(result(*(unsent(i, i * 1.0) for i in range(3)), gave_up="it is gone"))))
    assert "This run is invalid" in text
    assert "the run stopped early: it is gone" in text
    assert "no data" in text
    assert "nan" not in text.lower().split()


def test_pages_need_nothing_from_the_network() -> None:
    run = noisy_run(1, 50)
    for page in (replay_page(assess(run)), compare_page([compare(run, run)])):
        addresses = re.findall(r"""(?:src|href)\s*=|url\(|@import|https?://[^\s"'<]+""", page)
        assert addresses == ["http://h"] or set(addresses) <= {"http://h"}, "only what the run was sent to is named"


def test_what_servers_say_cannot_become_part_of_the_page() -> None:
    evil = "<script>alert(1)</script>\"'&"
    run = result(
        *(record(i, i * 0.1, tenant=evil) for i in range(30)),
        failed(30, 3.0, detail=evil),
        name=evil,
        notes=(evil,),
        target={"model": evil},
    )
    for page in (replay_page(assess(run)), compare_page([compare(run, run)])):
        assert "<script>alert" not in page
        tree, text = parsed(page)
        assert tree.counts["script"] == 1
        assert evil in text


def test_a_comparison_says_what_the_data_carry() -> None:
    base = noisy_run(1, 400, name="base")
    page = compare_page([compare(base, noisy_run(2, 400, slower=1.5, name="slow")), compare(base, base)])
    _, text = parsed(page)
    assert "slow against base: TTFT mean +" in text
    assert "base against base: no difference that the data carry" in text
    assert 'class="worse"' in page


def test_a_terminal_gets_the_same_rows() -> None:
    comparison = compare(noisy_run(1, 60, name="a"), noisy_run(2, 60, name="b"))
    head, *rows = text_rows(comparison)
    assert head[:3] == ["", "a", "b"]
    assert [row[0] for row in rows] == [row.title for row in comparison.rows]


def test_an_interval_says_its_unit_once_if_both_ends_have_it() -> None:
    comparison = compare(noisy_run(1, 60, name="a"), noisy_run(2, 60, name="b"))
    (row, *_) = comparison.rows
    for low, high, text in (
        (-0.0362, 0.018, "-36.2 to +18 ms"),
        (-0.5, 1.5, "-500 ms to +1.5 s"),
        (1.5, 2.0, "+1.5 to +2 s"),
    ):
        changed = replace(row, interval=Interval(0.0, low, high))
        (_, cells) = text_rows(replace(comparison, rows=(changed,)))
        assert cells[4] == text


def test_a_page_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="cannot write"):
        write_page("x", tmp_path / "no" / "p.html")


# ---- charts


def test_a_chart_is_labelled_where_it_is_told_to_be() -> None:
    plain = Chart("t", [Series("a", [16.0, 64.0], [1.0, 2.0])], x_unit="", x_log=True)
    assert ">50</text>" in plain.render()
    told = replace(plain, x_ticks=(16.0, 64.0)).render()
    assert ">16</text>" in told
    assert ">64</text>" in told
    assert ">50</text>" not in told
    assert 'text-anchor="end">2048</text>' in replace(plain, x_range=(16.0, 2048.0), x_ticks=(2048.0,)).render()


def test_filled_dots_are_filled() -> None:
    rings = Series("a", [1.0, 2.0], [1.0, 2.0], dots=True)
    assert "fill:" not in Chart("t", [rings]).body()
    assert Chart("t", [replace(rings, filled=True)]).body().count("fill:var(--s0)") == 2


def test_a_wide_table_is_set_smaller() -> None:
    run = noisy_run(1, 400, name="a")
    assert '<table class="wide">' in replay_page(assess(run)), "twelve percentiles a group"
    assert '<table class="wide">' not in compare_page([compare(run, run)])


def test_a_scale_maps_its_ends_to_its_ends() -> None:
    for log in (False, True):
        scale = Scale(1.0, 100.0, 50.0, 550.0, log, "s")
        assert scale.at(1.0) == 50.0
        assert scale.at(100.0) == pytest.approx(550.0)
    assert Scale(1.0, 100.0, 0.0, 1.0, True, "s").at(10.0) == pytest.approx(0.5)
    assert Scale(3.0, 3.0, 0.0, 1.0, False, "s").at(3.0) == 0.5


@pytest.mark.parametrize(
    ("low", "high", "log", "ticks"),
    [
        (0.0, 10.0, False, [0, 2, 4, 6, 8, 10]),
        (0.0, 0.3, False, [0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3]),
        (0.0, 12.0, False, [0, 2, 4, 6, 8, 10, 12]),
        (0.018, 0.031, True, [0.018, 0.02, 0.022, 0.024, 0.026, 0.028, 0.03]),
        (0.002, 0.3, True, [0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2]),
        (1e-5, 1e3, True, [1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1, 10, 100, 1000]),
    ],
)
def test_ticks_are_round_numbers_inside_the_scale(low: float, high: float, log: bool, ticks: list[float]) -> None:
    assert Scale(low, high, 0.0, 1.0, log, "s").ticks() == pytest.approx(ticks)


def test_a_distribution_rises_to_all_of_it() -> None:
    few = cdf("x", [3.0, 1.0, 2.0, 2.0])
    assert list(few.xs) == [1.0, 2.0, 2.0, 3.0]
    assert list(few.ys) == [25.0, 50.0, 75.0, 100.0]
    many = cdf("x", [float(i) for i in range(100_000)])
    assert len(many.xs) == 300
    ys = [y for y in many.ys if y is not None]
    assert ys == sorted(ys)
    assert list(many.xs)[-1] == pytest.approx(99_998, rel=0.001)


def test_lines_break_where_there_is_no_value() -> None:
    chart = Chart("c", [Series("s", [1.0, 2.0, 3.0, 4.0, 5.0], [1.0, 2.0, None, 4.0, 5.0])]).render()
    assert chart.count("<polyline") == 2
    assert "no data" in Chart("c", [Series("s", [1.0], [None])]).render()


def test_zero_has_no_place_on_a_log_scale() -> None:
    chart = Chart("c", [Series("s", [0.0, 1.0, 10.0], [5.0, 6.0, 7.0])], x_log=True).render()
    assert chart.count("<polyline") == 1
    assert "nan" not in chart
