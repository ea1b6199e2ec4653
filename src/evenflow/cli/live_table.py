"""What a load run looks like while it runs: the latest iterations as a chart, and a line for each request.

      request state     prompt              output                             TTFT
      demo-07 ● decode     142 ━━━━           31/64   ━━━━━━━━━╸────────      210 ms

Bars are as long as their request has tokens, beside the longest one. A line belongs to its request until it is done and
another needs the place, so that nothing on the screen ever moves; where all fit they are in order of arrival. Every
frame of a size has the same lines.
"""

import time
from collections.abc import Iterator, Sequence

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from evenflow.cli.palette import DECODE_COLOUR, FAINT, LOOKS, PREFILL_COLOUR, QUEUE_COLOUR
from evenflow.cli.run_watch import Phase, RunWatch
from evenflow.cli.step_chart import chart, top_of, words
from evenflow.observe.summary import format_seconds
from evenflow.replay.request import ObservedRequest

_CHART_HEIGHT = 4
_LINES_AROUND_ROWS = _CHART_HEIGHT + 6  # status, the chart's words, a blank line on both sides, heading, who is off
_LEAST_ROWS = 3
_WIDEST = 120
_MOST_PER_SECOND = 256  # tokens of one request
_COLUMNS_BESIDE_BARS = 39  # and the request's name
_OVER = frozenset((Phase.DONE, Phase.CUT, Phase.FAILED))
_ALWAYS_COUNTED = (Phase.QUEUED, Phase.PREFILL, Phase.DECODE, Phase.DONE)


class LiveTable:
    """A rich renderable over a run that goes on. Each time it is drawn it looks at the run anew."""

    def __init__(self, watch: RunWatch) -> None:
        self._watch = watch
        self._places = Places()
        self._top = 0

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self._watch.look()
        width = min(options.max_width - 1, _WIDEST)
        for line in self._lines(width, console.size.height):
            line.no_wrap, line.overflow = True, "crop"
            line.truncate(width)
            yield line

    def _lines(self, width: int, height: int) -> Iterator[Text]:
        observed = self._watch.observed
        phases = {request.plan.request_id: self._watch.phase(request) for request in observed}
        num_rows = max(_LEAST_ROWS, min(height - _LINES_AROUND_ROWS - 1, len(observed)))
        shown = self._places.give(observed, phases, num_rows)
        yield self._status(list(phases.values()))
        yield Text()
        self._top = top_of(self._watch.steps, self._top)
        yield from chart(self._watch.steps, self._top, width, _CHART_HEIGHT)
        yield words(self._watch.steps, self._tokens_per_second())
        yield Text()
        columns = _Columns(observed, width)
        yield columns.heading()
        for request in shown:
            yield Text() if request is None else self._row(columns, request, phases[request.plan.request_id])
        num_off = sum(phase not in _OVER and phase is not Phase.TO_COME for phase in phases.values()) - sum(
            request is not None and phases[request.plan.request_id] not in _OVER for request in shown
        )
        yield Text(f"  and {num_off} more that this screen has no line for" if num_off else "", FAINT)

    def _tokens_per_second(self) -> int:
        since = time.monotonic() - 1.0
        return sum(at > since for request in self._watch.observed for at in request.chunk_times[-_MOST_PER_SECOND:])

    def _status(self, phases: Sequence[Phase]) -> Text:
        """After an interrupt nothing is to come any more, and what was cut takes the room of it."""
        digits = len(str(len(phases)))
        text = Text(" ")
        for phase in (*_ALWAYS_COUNTED, Phase.CUT if Phase.CUT in phases else Phase.TO_COME, Phase.FAILED):
            count = phases.count(phase)
            if count or phase is not Phase.FAILED:
                look = LOOKS[phase]
                text.append(f"{look.sign} ", look.style).append(f"{count:>{digits}} ", "bold")
                text.append(f"{phase.value}  ", look.style)
        return text

    def _row(self, columns: "_Columns", request: ObservedRequest, phase: Phase) -> Text:
        plan, look = request.plan, LOOKS[phase]
        prompt, done = plan.num_prompt_tokens, request.num_events
        computed = prompt if request.chunk_times else self._watch.prompt_computed(request) or 0
        over = phase is Phase.DONE
        plain, veil = (FAINT, "dim ") if over else ("", "")
        text = Text(f"  {plan.request_id:<{columns.name}} ", plain)
        text.append(f"{look.sign} {phase.value:<8}", look.style)
        text.append(f"{prompt:>6} ", plain)
        columns.prompt_bar(text, min(computed, prompt), prompt, f"{veil}{PREFILL_COLOUR}")
        text.append(f"{done:>5}", plain).append(f"/{plan.max_tokens:<4} ", FAINT)
        columns.output_bar(text, min(done, plan.max_tokens), plan.max_tokens, f"{veil}{DECODE_COLOUR}")
        if request.ttft is not None:
            return text.append(f"{format_seconds(request.ttft):>8}", plain)
        end = request.finished if request.finished is not None else time.monotonic()
        return text.append(f"{format_seconds(max(0.0, end - request.intended)):>8}", f"italic {QUEUE_COLOUR}")


class _Columns:
    """Where things are in a row; the same for all rows of a run and a width."""

    def __init__(self, observed: Sequence[ObservedRequest], width: int) -> None:
        self.name = max((len(request.plan.request_id) for request in observed), default=len("request"))
        self._most_prompt = max((request.plan.num_prompt_tokens for request in observed), default=1)
        self._most_output = max((request.plan.max_tokens for request in observed), default=1)
        bars = max(8, width - _COLUMNS_BESIDE_BARS - self.name)
        self._prompt_width = bars * 2 // 5
        self._output_width = bars - self._prompt_width

    def heading(self) -> Text:
        names = f"  {'request':<{self.name}} {'state':<10}"
        prompt = f"{'prompt':>6} {'':{self._prompt_width}}"
        output = f"{'output':>9}  {'':{self._output_width}}"
        return Text(f"{names}{prompt}{output}{'TTFT':>8}", FAINT)

    def prompt_bar(self, text: Text, done: int, total: int, style: str) -> None:
        _bar(text, done, total, self._most_prompt, self._prompt_width, style)

    def output_bar(self, text: Text, done: int, total: int, style: str) -> None:
        _bar(text, done, total, self._most_output, self._output_width, style)


def _bar(text: Text, done: int, total: int, most: int, width: int, style: str) -> None:
    length = max(1, total * width // most)
    full, half = divmod(done * length * 2 // total, 2)
    text.append("━" * full + "╸" * half, style)
    text.append("─" * (length - full - half), FAINT).append(" " * (width - length))


class Places:
    """Which line shows which request."""

    def __init__(self) -> None:
        self._places: list[ObservedRequest | None] = []
        self._known: set[str] = set()

    def give(
        self, observed: Sequence[ObservedRequest], phases: "dict[str, Phase]", num_places: int
    ) -> Sequence[ObservedRequest | None]:
        """A place for every request that has begun, as far as there are places; who has one keeps it."""
        self._resize(num_places)
        for request in observed:
            name = request.plan.request_id
            if phases[name] is Phase.TO_COME or name in self._known:
                continue
            place = self._free_place(phases)
            if place is None:
                break
            self._places[place] = request
            self._known.add(name)
        return tuple(self._places)

    def _resize(self, num_places: int) -> None:
        for request in self._places[num_places:]:
            if request is not None:
                self._known.discard(request.plan.request_id)
        self._places = [*self._places[:num_places], *[None] * (num_places - len(self._places))]

    def _free_place(self, phases: "dict[str, Phase]") -> int | None:
        """The first that nobody has had, or that of who was done first."""
        if None in self._places:
            return self._places.index(None)
        over = [
            (request.finished or 0.0, place)
            for place, request in enumerate(self._places)
            if request is not None and phases[request.plan.request_id] in _OVER
        ]
        return min(over)[1] if over else None
