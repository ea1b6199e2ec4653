"""Every source as a row of a table: how it is recognised, what its clock is, how one row becomes a request.

The most specific comes first: a format whose columns are among another's must stand below it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from evenflow.workload.columns import numeric_clock
from evenflow.workload.rows import Row
from evenflow.workload.trace import PrefixBlocks, TraceError, TraceRequest

Clock = Callable[[Row], float]
CountTokens = Callable[[str], int]

MOONCAKE_BLOCKS = (512, 16)
BAILIAN_BLOCKS = (16,)


@dataclass(frozen=True, slots=True)
class Format:
    """`clock` makes what reads a row's time, in seconds of any origin; None if rows have no time.

    `request` may leave the arrival at 0. `holds_text` says that its tokens must be counted.
    """

    name: str
    columns: frozenset[str]
    time_unit: str | None
    time_column: str | None
    request: Callable[[Row], TraceRequest]
    clock: Callable[[], Clock] | None = None

    def new_clock(self, unit: str | None) -> Clock | None:
        """`unit` overrides the format's own, where times are numbers."""
        if self.clock is not None:
            if unit is not None:
                raise TraceError(f"{self.name} files have dates and times; time_unit does not apply to them")
            return self.clock()
        if self.time_column is None or self.time_unit is None:
            return None
        return numeric_clock(self.time_column, unit or self.time_unit)


@dataclass(slots=True)
class DateClock:
    """7 fractional digits and no zone, or 6 and +00:00; fromisoformat reads both, to the microsecond."""

    column: str
    first: datetime | None = None

    def __call__(self, row: Row) -> float:
        """From the first row on: seconds since an epoch would have no room for microseconds."""
        instant = row.instant(self.column)
        if self.first is None:
            self.first = instant
        if (instant.tzinfo is None) != (self.first.tzinfo is None):
            raise row.error(self.column, "has a time zone where others have none, or the other way round")
        return (instant - self.first).total_seconds()


def _lengths(prompt: str, output: str, *, tenant: str | None = None) -> Callable[[Row], TraceRequest]:
    def request(row: Row) -> TraceRequest:
        who = row.text(tenant) if tenant is not None else None
        return TraceRequest(0.0, row.count(prompt), row.count(output), tenant=who)

    return request


def _blocks(row: Row, sizes: Sequence[int]) -> PrefixBlocks:
    """The size is the first that gives as many blocks as the row has."""
    num_tokens, ids = row.count("input_length"), row.ids("hash_ids")
    for size in sizes:
        blocks = PrefixBlocks(size, ids)
        if blocks.covers(num_tokens):
            return blocks
    tried = " or ".join(f"{-(-num_tokens // size)} of {size}" for size in sizes)
    raise row.error("hash_ids", f"{len(ids)} blocks for {num_tokens} tokens; it would have to be {tried}")


def _mooncake(row: Row) -> TraceRequest:
    return TraceRequest(
        0.0, row.count("input_length"), row.count("output_length"), prefix=_blocks(row, MOONCAKE_BLOCKS)
    )


def _bailian(row: Row) -> TraceRequest:
    parent = row.text("parent_chat_id")
    return TraceRequest(
        0.0,
        row.count("input_length"),
        row.count("output_length"),
        name=row.text("chat_id"),
        parent=None if parent == "-1" else parent,
        prefix=_blocks(row, BAILIAN_BLOCKS),
        service_class=row.text("type") if row.has("type") else None,
    )


def _burstgpt(row: Row) -> TraceRequest:
    session = row.text("Session ID") if row.has("Session ID") else None
    return TraceRequest(0.0, row.count("Request tokens"), row.count("Response tokens"), session=session)


def canonical_request(row: Row) -> TraceRequest:
    """What write_trace writes."""

    def label(column: str) -> str | None:
        return row.text(column) if row.has(column) else None

    prefix = None
    num_tokens = row.count("input_tokens")
    if row.has("prefix_blocks"):
        prefix = PrefixBlocks(row.count("block_tokens"), row.ids("prefix_blocks"))
        if prefix.block_tokens < 1 or not prefix.covers(num_tokens):
            raise row.error(
                "prefix_blocks", f"{len(prefix.ids)} blocks of {prefix.block_tokens} for {num_tokens} tokens"
            )
    return TraceRequest(
        0.0,
        num_tokens,
        row.count("output_tokens"),
        name=label("name"),
        session=label("session"),
        parent=label("parent"),
        prefix=prefix,
        service_class=label("service_class"),
        tenant=label("tenant"),
        text=label("text"),
    )


def _numbered(name: str, unit: str, time_column: str, columns: str, request: Callable[[Row], TraceRequest]) -> Format:
    return Format(name, frozenset([time_column, *columns.split(",")]), unit, time_column, request)


_AZURE_COLUMNS = frozenset({"TIMESTAMP", "ContextTokens", "GeneratedTokens"})

TOKEN_FORMATS: tuple[Format, ...] = (
    Format(
        "azure",
        _AZURE_COLUMNS,
        "date and time",
        None,
        _lengths("ContextTokens", "GeneratedTokens"),
        lambda: DateClock("TIMESTAMP"),
    ),
    _numbered("qwen-bailian", "s", "timestamp", "input_length,output_length,hash_ids,chat_id,parent_chat_id", _bailian),
    _numbered("mooncake", "ms", "timestamp", "input_length,output_length,hash_ids", _mooncake),
    _numbered("burstgpt", "s", "Timestamp", "Model,Request tokens,Response tokens", _burstgpt),
    _numbered(
        "vidur",
        "s",
        "arrived_at",
        "num_prefill_tokens,num_decode_tokens",
        _lengths("num_prefill_tokens", "num_decode_tokens"),
    ),
    _numbered(
        "splitwise-sim", "s", "arrival_timestamp", "prompt_size,token_size", _lengths("prompt_size", "token_size")
    ),
    _numbered("guidellm", "s", "timestamp", "input_length,output_length", _lengths("input_length", "output_length")),
    _numbered(
        "servegen",
        "s",
        "arrival_s",
        "client,input_tokens,output_tokens",
        _lengths("input_tokens", "output_tokens", tenant="client"),
    ),
    _numbered("evenflow", "s", "arrival_s", "input_tokens,output_tokens", canonical_request),
    # `arrival_time` is when the benchmark sent it; the other four times are the engine's, on another clock.
    _numbered(
        "vllm-run", "s", "arrival_time", "request_id,input_toks,output_toks", _lengths("input_toks", "output_toks")
    ),
    Format(
        "lengths",
        frozenset({"num_prefill_tokens", "num_decode_tokens"}),
        None,
        None,
        _lengths("num_prefill_tokens", "num_decode_tokens"),
    ),
)
