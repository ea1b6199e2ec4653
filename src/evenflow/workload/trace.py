"""A trace: when requests came and how long they were, and which of them share the beginning of their prompts.

Lengths, not text, unless the source has text; text is made to measure otherwise (synthesize.py).
"""

from dataclasses import dataclass

from evenflow.core.errors import EvenflowError


class TraceError(EvenflowError):
    """A trace or workload file cannot be read; the message names the file, the line and the column or field."""


@dataclass(frozen=True, slots=True)
class PrefixBlocks:
    """What a prompt is made of, without saying it: equal ids are equal blocks of `block_tokens` tokens.

    The last block may be partial. `ids` cover the whole prompt.
    """

    block_tokens: int
    ids: tuple[int, ...]

    def covers(self, num_tokens: int) -> bool:
        return -(-num_tokens // self.block_tokens) == len(self.ids)


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """`arrival_seconds` counts from the first request of the trace. Both lengths are at least 1.

    `parent` is the `name` of the request whose answer this one follows up: it cannot be sent before that is there.
    `text` is the prompt itself, where the source has it.
    """

    arrival_seconds: float
    num_prompt_tokens: int
    num_output_tokens: int
    name: str | None = None
    session: str | None = None
    parent: str | None = None
    prefix: PrefixBlocks | None = None
    service_class: str | None = None
    tenant: str | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Trace:
    """`requests` are in order of arrival. Rows read = requests + dropped (by reason); `source` is for people.

    `time_unit` is how the file writes time; None if it has none, and every request arrives at 0.
    """

    source: str
    format_name: str
    requests: tuple[TraceRequest, ...]
    num_rows: int
    dropped: tuple[tuple[str, int], ...] = ()
    time_unit: str | None = "s"

    def __post_init__(self) -> None:
        assert self.num_rows == len(self.requests) + sum(count for _, count in self.dropped)

    @property
    def span_seconds(self) -> float:
        return self.requests[-1].arrival_seconds if self.requests else 0.0

    def head(self, count: int) -> tuple[TraceRequest, ...]:
        return self.requests[:count]

    def describe(self) -> str:
        """One line: where every row went, and the unit of time."""
        dropped = "".join(f" + {num} dropped ({reason})" for reason, num in self.dropped)
        times = f"times as {self.time_unit}" if self.time_unit is not None else "no times"
        return f"{self.source}: {self.format_name}, {self.num_rows} rows = {len(self.requests)} kept{dropped}, {times}"
