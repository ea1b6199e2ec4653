"""Input length x output length: the groups that every table of tails is split by.

A P99 over all requests mixes a chat turn with a document: whoever waits ten seconds in one group hides behind thousands
in another. A group is an input span and an output span; edges are the last length *inside* a span.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from evenflow.core.errors import ConfigError

INPUT_EDGES = (128, 512, 2048, 8192)
OUTPUT_EDGES = (32, 128, 512)


def span_names(edges: Sequence[int]) -> tuple[str, ...]:
    """`1-128`, `129-512`, ..., `>8192`."""
    lows = [1, *(edge + 1 for edge in edges)]
    return (*(f"{low}-{high}" for low, high in zip(lows, edges, strict=False)), f">{edges[-1]}")


@dataclass(frozen=True, slots=True)
class LengthGroups:
    """Edges in tokens, rising."""

    input_edges: tuple[int, ...] = INPUT_EDGES
    output_edges: tuple[int, ...] = OUTPUT_EDGES

    def __post_init__(self) -> None:
        for name, edges in (("input", self.input_edges), ("output", self.output_edges)):
            if not edges or edges[0] < 1 or any(low >= high for low, high in pairwise(edges)):
                raise ConfigError(f"{name} length edges must be rising numbers of at least 1, not {list(edges)}")

    @property
    def names(self) -> tuple[str, ...]:
        """Of all groups, short inputs first and within them short outputs first."""
        inputs, outputs = span_names(self.input_edges), span_names(self.output_edges)
        return tuple(f"{prompt} in, {output} out" for prompt in inputs for output in outputs)

    def index_of(self, num_prompt_tokens: int, num_output_tokens: int) -> int:
        """The place of the group in `names`."""
        prompt = bisect_left(self.input_edges, num_prompt_tokens)
        output = bisect_left(self.output_edges, num_output_tokens)
        return prompt * (len(self.output_edges) + 1) + output

    def name_of(self, num_prompt_tokens: int, num_output_tokens: int) -> str:
        return self.names[self.index_of(num_prompt_tokens, num_output_tokens)]
