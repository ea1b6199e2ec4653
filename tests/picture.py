"""A run as text: a row for each request, a column for each step, so that a change of behaviour is a readable diff.

8      a prefill chunk of 8 tokens          *    a token came out (alone: an ordinary decode step)
4~3*   4 tokens from the prefix cache, 3 computed, and a token came out
4^3*   4 tokens from host memory, likewise
.      waits       -    runs, but left out of this step       x    preempted       !    aborted
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evenflow.core.plan import Chunk, StepPlan
from evenflow.core.request import FinishReason, Request, RequestId


@dataclass(frozen=True, slots=True)
class Column:
    time: float
    plan: StepPlan
    waiting: tuple[RequestId, ...]
    aborted: tuple[RequestId, ...]
    blocks_used: int
    blocks: int


def draw(requests: Sequence[Request], columns: Sequence[Column], reasons: Mapping[str, FinishReason]) -> str:
    rows = [["time", *(f"{column.time:g}" for column in columns), ""]]
    for request in requests:
        label = f"{request.id} {len(request.prompt_token_ids)}+{request.sampling.max_tokens}"
        reason = reasons.get(request.id)
        rows.append([label, *(_cell(request, column) for column in columns), reason.value if reason else ""])
    rows.append(["tokens", *(f"{column.plan.num_tokens}/{column.plan.token_budget}" for column in columns), ""])
    rows.append(["blocks", *(f"{column.blocks_used}/{column.blocks}" for column in columns), ""])
    rows.append(["door", *(_doors(column.plan) for column in columns), ""])
    widths = [max(len(row[i]) for row in rows) for i in range(len(columns) + 2)]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows)


def _cell(request: Request, column: Column) -> str:
    plan, mark = column.plan, "!" if request.id in column.aborted else ""
    for chunk in plan.chunks:
        if chunk.request_id == request.id:
            return _chunk(request, chunk, plan) + mark
    if request.id in plan.preempted:
        return "x" + mark
    if request.id in column.waiting:
        return "." + mark
    if any(left_out.request_id == request.id for left_out in plan.left_out):
        return "-" + mark
    return mark


def _chunk(request: Request, chunk: Chunk, plan: StepPlan) -> str:
    entries = {entry.request.id: entry for entry in plan.entered}
    cached = entries[request.id].num_cached_tokens if request.id in entries else 0
    swapped_in = entries[request.id].num_swapped_in_tokens if request.id in entries else 0
    decode = chunk.samples and len(chunk.token_ids) == 1 and chunk.start >= len(request.prompt_token_ids)
    size = "" if decode and not cached and not swapped_in else str(len(chunk.token_ids))
    found = (f"{cached}~" if cached else "") + (f"{swapped_in}^" if swapped_in else "")
    return found + size + ("*" if chunk.samples else "")


def _doors(plan: StepPlan) -> str:
    if len(plan.doors) == 1 and plan.doors[0].flow == "all":
        return f"{plan.doors[0].head}:{plan.doors[0].reason.value}"
    return " ".join(f"{door.flow}/{door.head}:{door.reason.value}" for door in plan.doors)
