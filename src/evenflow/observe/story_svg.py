"""A story (story.py) as a timeline: one bar from arrival to finish, coloured by what happened, and its legend.

A self-contained SVG that follows the reader's light or dark theme. Every text is escaped: ids come from clients.
"""

import html
from collections.abc import Iterator
from typing import Final

from evenflow.observe.story import Phase, Story
from evenflow.observe.story_text import reason_in_words, whom
from evenflow.observe.summary import format_seconds
from evenflow.observe.visible import visible

# Okabe and Ito's palette: told apart by colour-blind readers too.
COLOURS: Final = {
    "intake": "#999999",
    "queue": "#e69f00",
    "prefill": "#0072b2",
    "decode": "#009e73",
    "stalled": "#cc79a7",
    "preempted": "#d55e00",
}
_WIDTH: Final = 960
_LEFT: Final = 16
_BAR_TOP, _BAR_HEIGHT = 56, 36
_NARROWEST: Final = 0.5  # pixels: what is shorter than that is still seen
_STYLE: Final = (
    "text{font:13px system-ui,sans-serif;fill:#222}.small{font-size:11px;fill:#666}"
    "@media(prefers-color-scheme:dark){text{fill:#ddd}.small{fill:#aaa}}"
)


def escape(text: str) -> str:
    return html.escape(visible(text))


def render_svg(story: Story) -> str:
    legend = list(_legend(story))
    height = _BAR_TOP + _BAR_HEIGHT + 48 + 20 * len(legend)
    body = [*_head(story), *_bar(story), *legend]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
        f'aria-label="timeline of request {escape(str(story.request_id))}"><style>{_STYLE}</style>'
        + "".join(body)
        + "</svg>\n"
    )


def _head(story: Story) -> Iterator[str]:
    yield f'<text x="{_LEFT}" y="24" font-weight="600">request {escape(str(story.request_id))}</text>'
    said = []
    if story.num_prompt_tokens is not None:
        said.append(f"{story.num_prompt_tokens:,} tokens in")
    said.append(f"{story.num_output_tokens:,} out" if story.finish_time is not None else "not finished")
    if story.first_token_time is not None:
        said.append(f"first token after {format_seconds(story.first_token_time - story.arrival_time)}")
    if story.rejected_because is not None:
        said = [f"refused: {story.rejected_because}"]
    yield f'<text x="{_LEFT}" y="42" class="small">{escape(", ".join(said))}</text>'


def _bar(story: Story) -> Iterator[str]:
    if not story.phases:
        return
    begin, end = story.phases[0].start, story.phases[-1].end
    scale = (_WIDTH - 2 * _LEFT) / max(end - begin, 1e-9)

    def x_of(time: float) -> float:
        return _LEFT + (time - begin) * scale

    for phase in story.phases:
        width = max(phase.seconds * scale, _NARROWEST)
        yield (
            f'<rect x="{x_of(phase.start):.2f}" y="{_BAR_TOP}" width="{width:.2f}" height="{_BAR_HEIGHT}" '
            f'fill="{COLOURS[phase.kind]}"><title>{escape(_title(phase, begin))}</title></rect>'
        )
    if story.first_token_time is not None:
        x, bottom = x_of(story.first_token_time), _BAR_TOP + _BAR_HEIGHT + 6
        yield f'<path d="M{x:.2f} {_BAR_TOP - 6}V{bottom}" stroke="currentColor" stroke-dasharray="3 2"/>'
        beside = min(max(x, _LEFT + 12), _WIDTH - 140)  # the times of both ends are on the same line
        yield f'<text x="{beside:.2f}" y="{bottom + 12}" class="small">first token</text>'
    yield f'<text x="{_LEFT}" y="{_BAR_TOP + _BAR_HEIGHT + 18}" class="small">0</text>'
    yield (
        f'<text x="{_WIDTH - _LEFT}" y="{_BAR_TOP + _BAR_HEIGHT + 18}" text-anchor="end" class="small">'
        f"{format_seconds(end - begin)}</text>"
    )


def _title(phase: Phase, begin: float) -> str:
    said = f"{phase.kind} +{phase.start - begin:.4f} s, {format_seconds(phase.seconds)}"
    if phase.reason is not None:
        said += f": {reason_in_words(phase.reason)}"
    if phase.spent_on:
        said += f": {whom(phase)}"
    if phase.behind is not None:
        said += f", behind {phase.behind}"
    if phase.num_tokens:
        said += f", {phase.num_tokens} tokens in {phase.num_steps} steps"
    return said


def _legend(story: Story) -> Iterator[str]:
    y = _BAR_TOP + _BAR_HEIGHT + 48
    by_kind: dict[tuple[str, str | None], float] = {}
    for phase in story.phases:
        key = (phase.kind, phase.reason)
        by_kind[key] = by_kind.get(key, 0.0) + phase.seconds
    for index, ((kind, reason), seconds) in enumerate(sorted(by_kind.items(), key=lambda item: -item[1])):
        top = y + 20 * index
        why = f": {reason_in_words(reason)}" if reason is not None else ""
        yield f'<rect x="{_LEFT}" y="{top - 11}" width="12" height="12" fill="{COLOURS[kind]}"/>'
        yield f'<text x="{_LEFT + 20}" y="{top}">{escape(kind + why)}</text>'
        yield f'<text x="{_WIDTH - _LEFT}" y="{top}" text-anchor="end">{format_seconds(seconds)}</text>'
