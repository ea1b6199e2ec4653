"""The latest iterations as columns: how many requests each ran, those whose prompt it computed on top.

     12 ▆▆▇▇██▇▇▇▇██▇▇▇        green: a token each (decode)
        ██████████████▇▇▇▇     blue: a chunk of a prompt each (prefill)
      0 ██████████████████
        1,234 iterations, 113 tokens/s; last: 11 decode + 1 prefill, 267 tokens

A cell has eight levels. A cell that would need three colours (decode, prefill and nothing) gets the last two, so that
a prefill is never lost in it.
"""

from collections.abc import Sequence

from rich.text import Text

from evenflow.cli.palette import DECODE_COLOUR, FAINT, PREFILL_COLOUR
from evenflow.cli.run_watch import Iteration, StepFold

_LEVELS = 8
_PARTS = " ▁▂▃▄▅▆▇█"
_AXIS_WIDTH = 5
_TOP_STEP = 4


def chart(steps: StepFold, top: int, width: int, height: int) -> list[Text]:
    """`height` lines of columns that reach up to `top` requests."""
    columns = list(steps.latest)[-(width - _AXIS_WIDTH) :]
    rows = [_row(columns, top, row, height) for row in reversed(range(height))]
    labels = {0: str(top), height - 1: "0"}
    return [Text(f"{labels.get(index, ''):>3}  ", FAINT).append_text(row) for index, row in enumerate(rows)]


def top_of(steps: StepFold, before: int) -> int:
    """What the chart must reach: a multiple of four that never shrinks, so that columns mostly keep their height."""
    highest = max((step.num_requests for step in steps.latest), default=1)
    return max(before, -(-highest // _TOP_STEP) * _TOP_STEP)


def _row(columns: Sequence[Iteration], top: int, row: int, height: int) -> Text:
    text = Text()
    for step in columns:
        decode = _level(step.num_decode, top, height) - row * _LEVELS
        whole = _level(step.num_requests, top, height) - row * _LEVELS
        text.append(*_cell(decode, whole))
    return text


def _level(count: int, top: int, height: int) -> int:
    """At least one level for at least one."""
    return max(count * height * _LEVELS // top, count > 0)


def _cell(decode: int, whole: int) -> tuple[str, str]:
    """The sign and style of a cell that decode fills up to one level and everything up to another."""
    if whole <= 0:
        return " ", ""
    if decode >= min(whole, _LEVELS):
        return _PARTS[min(whole, _LEVELS)], DECODE_COLOUR
    if decode <= 0 or whole < _LEVELS:
        return _PARTS[min(whole, _LEVELS)], PREFILL_COLOUR
    return _PARTS[decode], f"{DECODE_COLOUR} on {PREFILL_COLOUR}"


def words(steps: StepFold, tokens_per_second: int) -> Text:
    """A line below the columns. `tokens_per_second` is what the client gets."""
    margin = " " * _AXIS_WIDTH
    if not steps.latest:
        return Text(f"{margin}no iteration yet", FAINT)
    last = steps.latest[-1]
    return Text.assemble(
        (f"{margin}{len(steps.tokens):,} iterations, {tokens_per_second} tokens/s; last: ", FAINT),
        (f"{last.num_decode} decode", DECODE_COLOUR),
        (" + ", FAINT),
        (f"{last.num_prefill} prefill", PREFILL_COLOUR),
        (f", {last.num_tokens} tokens", FAINT),
    )
