"""evenflow's own trace file: JSON lines with every field a request can have. What is read is what was written."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from evenflow.workload.trace import Trace, TraceError, TraceRequest


class _Line(msgspec.Struct, omit_defaults=True):
    arrival_s: float
    input_tokens: int
    output_tokens: int
    name: str | None = None
    session: str | None = None
    parent: str | None = None
    block_tokens: int | None = None
    prefix_blocks: tuple[int, ...] | None = None
    service_class: str | None = None
    tenant: str | None = None
    text: str | None = None


def write_trace(trace: Trace, path: Path) -> None:
    encoder = msgspec.json.Encoder()
    try:
        with path.open("wb") as file:
            for line in _lines(trace.requests):
                file.write(encoder.encode(line) + b"\n")
    except OSError as error:
        raise TraceError(f"cannot write the trace {path}: {error.strerror}") from error


def _lines(requests: tuple[TraceRequest, ...]) -> Iterator[_Line]:
    for request in requests:
        yield _Line(
            arrival_s=request.arrival_seconds,
            input_tokens=request.num_prompt_tokens,
            output_tokens=request.num_output_tokens,
            name=request.name,
            session=request.session,
            parent=request.parent,
            block_tokens=request.prefix.block_tokens if request.prefix is not None else None,
            prefix_blocks=request.prefix.ids if request.prefix is not None else None,
            service_class=request.service_class,
            tenant=request.tenant,
            text=request.text,
        )
