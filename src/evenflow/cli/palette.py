"""The colours and signs of the demo: one hue for each thing a request can be doing, wherever it is drawn.

Hues of middle lightness, so that they are legible on black and on white; where a terminal has fewer colours the nearest
is taken. Signs and words say the same without colour.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from evenflow.cli.run_watch import Phase


@dataclass(frozen=True, slots=True)
class Look:
    sign: str
    style: str


FAINT = "#808080"
QUEUE_COLOUR = "#c77d0a"
PREFILL_COLOUR = "#3b82f6"
DECODE_COLOUR = "#16a34a"

LOOKS: Mapping[Phase, Look] = {
    Phase.TO_COME: Look("·", FAINT),
    Phase.QUEUED: Look("○", QUEUE_COLOUR),
    Phase.PREFILL: Look("◐", PREFILL_COLOUR),
    Phase.DECODE: Look("●", DECODE_COLOUR),
    Phase.DONE: Look("✓", FAINT),
    Phase.CUT: Look("✂", "#c026d3"),
    Phase.FAILED: Look("✗", "bold #dc2626"),
}
