"""Iterations as columns."""

from collections.abc import Sequence

from rich.text import Text

from evenflow.cli.palette import DECODE_COLOUR, PREFILL_COLOUR
from evenflow.cli.run_watch import Iteration, StepFold
from evenflow.cli.step_chart import chart, top_of, words

AXIS = 5


def fold_of(*iterations: tuple[int, int]) -> StepFold:
    """Each is (decode, prefill)."""
    fold = StepFold()
    for decode, prefill in iterations:
        fold.latest.append(Iteration(prefill, decode, decode + 100 * prefill))
        fold.tokens.append(decode + 100 * prefill)
    return fold


def columns(lines: Sequence[Text]) -> list[str]:
    """From left to right, each from top to bottom."""
    return ["".join(cells) for cells in zip(*(line.plain[AXIS:] for line in lines), strict=True)]


def style_at(line: Text, column: int) -> str:
    return next(str(span.style) for span in line.spans if span.start <= AXIS + column < span.end and span.end > AXIS)


def test_a_column_is_as_high_as_its_step_has_requests() -> None:
    lines = chart(fold_of((0, 1), (4, 0), (4, 4), (8, 8)), top=16, width=80, height=2)
    assert columns(lines) == [" ▁", " ▄", " ▄", "██"]  # the third is all of a cell, its lower half decode


def test_prefill_is_on_top_of_decode_in_its_own_colour() -> None:
    top, bottom = chart(fold_of((8, 4), (4, 8), (3, 1), (2, 0)), top=16, width=80, height=2)
    assert [style_at(bottom, column) for column in range(4)] == [
        DECODE_COLOUR,
        f"{DECODE_COLOUR} on {PREFILL_COLOUR}",
        PREFILL_COLOUR,  # three colours are one too many for a cell
        DECODE_COLOUR,
    ]
    assert [style_at(top, column) for column in range(2)] == [PREFILL_COLOUR] * 2


def test_the_latest_steps_are_shown_and_fit() -> None:
    lines = chart(fold_of(*[(1, 0)] * 100, (4, 0)), top=4, width=30, height=1)
    assert columns(lines) == ["▂"] * 24 + ["█"]


def test_the_scale_grows_by_fours_and_never_shrinks() -> None:
    assert top_of(fold_of(), 0) == 4
    assert top_of(fold_of((3, 1)), 4) == 4
    assert top_of(fold_of((3, 2)), 4) == 8
    assert top_of(fold_of((17, 16)), 8) == 36
    assert top_of(fold_of((1, 0)), 36) == 36


def test_the_words_are_of_the_last_step() -> None:
    assert words(fold_of(), 0).plain.strip() == "no iteration yet"
    said = words(fold_of((1, 0), (12, 3)), 113).plain.strip()
    assert said == "2 iterations, 113 tokens/s; last: 12 decode + 3 prefill, 312 tokens"
