"""What a server recorded as a trace: its event log can be replayed like any other traffic.

A request's length is what it came to, not what it was allowed; one that the log does not see to its end has none, and
is dropped. Content is not in the log, but which blocks of it were equal is, as far as the prefix cache asked.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from evenflow.core.events import Arrived, ConfigChanged, Finished
from evenflow.core.request import DEFAULT_CLASS, DEFAULT_TENANT, RequestId
from evenflow.files.file_kind import FileKind, kind_of, mistaken
from evenflow.observe.lives import distinct_lives
from evenflow.observe.log import LogError, read_log
from evenflow.workload.formats import Reading, read_trace
from evenflow.workload.rows import MAX_TOKENS, check_can_be_read_again, open_text
from evenflow.workload.trace import PrefixBlocks, Trace, TraceError, TraceRequest

EVENT_LOG = "evenflow event log"
_SHOWN_CHARACTERS = 80


def open_trace(path: Path, reading: Reading) -> Trace:
    """A trace file or an event log."""
    check_can_be_read_again(path)
    kind = kind_of(path)
    if kind is FileKind.EVENT_LOG:
        return trace_of_log(path, reading.limit)
    if (said := mistaken(kind, FileKind.TRACE, str(path))) is not None:
        raise TraceError(said)
    return read_trace(path, reading)


def is_event_log(path: Path) -> bool:
    """Raises TraceError for what cannot be read at all; whatever else is wrong with it, its reader says."""
    with open_text(path):
        return kind_of(path) is FileKind.EVENT_LOG


def trace_of_log(path: Path, limit: int | None = None) -> Trace:
    """In order of arrival at the front."""
    arrived: dict[RequestId, Arrived] = {}
    finished: dict[RequestId, Finished] = {}
    block_size: int | None = None
    try:
        with read_log(path) as events:
            for event in distinct_lives(events):
                match event:
                    case Arrived():
                        arrived[event.request_id] = event
                    case Finished():
                        finished[event.request_id] = event
                    case ConfigChanged():
                        block_size = dict(event.limits).get("block_size", block_size)
                    case _:
                        pass
    except LogError as error:
        raise TraceError(str(error)) from error
    requests = []
    dropped: Counter[str] = Counter()
    in_order = sorted(arrived.values(), key=lambda event: event.time)[:limit]
    for index, event in enumerate(in_order):
        end = finished.get(event.request_id)
        if end is None:
            dropped["not seen to its end"] += 1
        elif max(event.num_prompt_tokens, end.num_output_tokens) > MAX_TOKENS:
            raise TraceError(
                f"{path}: request {str(event.request_id)[:_SHOWN_CHARACTERS]!r} has more tokens than any model takes "
                f"({MAX_TOKENS})"
            )
        elif end.num_output_tokens == 0:
            dropped["no output tokens"] += 1
        elif event.num_prompt_tokens == 0:
            dropped["no prompt tokens"] += 1
        else:
            prefix = prefix_of(index, event.num_prompt_tokens, end.content, block_size)
            requests.append(_request(event, end.num_output_tokens, prefix))
    if not requests:
        raise TraceError(f"{path}: none of the {len(in_order)} requests in this event log came to an output")
    start = requests[0].arrival_seconds
    counted = tuple(replace(each, arrival_seconds=each.arrival_seconds - start) for each in requests)
    return Trace(str(path), EVENT_LOG, counted, len(in_order), tuple(dropped.items()))


_OWN = 1 << 60
"""Content that is nobody else's is numbered from here on; what a log numbers is below."""


def prefix_of(index: int, num_tokens: int, content: Sequence[int], block_size: int | None) -> PrefixBlocks | None:
    """What the log numbers of a prompt's blocks, and a number of its own for those that it does not."""
    if not content or not block_size:
        return None
    ids = [*content[: num_tokens // block_size]]
    ids += [_OWN + index] * (-(-num_tokens // block_size) - len(ids))
    return PrefixBlocks(block_size, tuple(ids))


def _request(event: Arrived, num_output_tokens: int, prefix: PrefixBlocks | None) -> TraceRequest:
    return TraceRequest(
        event.time,
        event.num_prompt_tokens,
        num_output_tokens,
        name=str(event.request_id),
        prefix=prefix,
        service_class=event.service_class if event.service_class != DEFAULT_CLASS else None,
        tenant=event.tenant if event.tenant != DEFAULT_TENANT else None,
    )
