"""The arrays of a plan against the same arrays made token by token."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenflow.core.block_pool import BlockId
from evenflow.core.plan import Chunk, Entry, StepPlan
from evenflow.core.request import Request, RequestId, SamplingParams
from evenflow.executors.torch.inputs import InputBuilder, StepInputs
from evenflow.executors.torch.rows import RequestRows
from evenflow.kernels.native import Kernels
from unit.kernels.attention_world import runnable_kernels

BLOCK_SIZE = 4
MAX_NUM_SEQS = 6
MAX_BLOCKS = 12


def request(name: str, num_prompt_tokens: int) -> Request:
    return Request(RequestId(name), tuple(range(num_prompt_tokens)), SamplingParams(), 0.0)


def chunk(each: Request, start: int, length: int, samples: bool, first_block: int) -> Chunk:
    num_blocks = -(-(start + length) // BLOCK_SIZE)
    blocks = tuple(BlockId(first_block + 7 * i) for i in range(num_blocks))
    return Chunk(each.id, start, tuple(range(100 + start, 100 + start + length)), blocks, samples)


def check(inputs: StepInputs, chunks: Sequence[Chunk], requests: dict[RequestId, Request]) -> None:
    flat = [(c, c.start + i) for c in chunks for i in range(len(c.token_ids))]
    assert inputs.token_ids.tolist() == [token_id for c in chunks for token_id in c.token_ids]
    assert inputs.positions.tolist() == [position for _, position in flat]
    assert inputs.layout.slots.tolist() == [
        c.block_ids[position // BLOCK_SIZE] * BLOCK_SIZE + position % BLOCK_SIZE for c, position in flat
    ]
    starts = [sum(len(c.token_ids) for c in chunks[:i]) for i in range(len(chunks) + 1)]
    assert inputs.layout.query_start.tolist() == starts
    assert inputs.layout.context_len.tolist() == [c.start for c in chunks]
    for row, c in zip(inputs.layout.block_tables.tolist(), chunks, strict=True):
        assert row[: len(c.block_ids)] == list(c.block_ids)
    sampling = [(c, end) for c, end in zip(chunks, starts[1:], strict=True) if c.samples]
    assert list(inputs.sampling_ids) == [c.request_id for c, _ in sampling]
    assert inputs.logit_rows.tolist() == [end - 1 for _, end in sampling]
    assert inputs.places.tolist() == [
        c.start + len(c.token_ids) - len(requests[c.request_id].prompt_token_ids) for c, _ in sampling
    ]


@st.composite
def steps(draw: st.DrawFn) -> list[list[tuple[int, int, int, bool, int]]]:
    """Per step, chunks of distinct requests: who, start, length, samples, first block."""
    chunks = st.tuples(
        st.integers(0, MAX_NUM_SEQS - 1), st.integers(0, 30), st.integers(1, 12), st.booleans(), st.integers(0, 50)
    )
    step = st.lists(chunks, min_size=1, max_size=MAX_NUM_SEQS, unique_by=lambda fields: fields[0])
    return draw(st.lists(step, max_size=5))


@pytest.mark.parametrize("kernels", runnable_kernels(), ids=lambda kernels: kernels.isa or "torch")
@given(plans=steps())
def test_arrays_are_those_made_token_by_token(
    plans: list[list[tuple[int, int, int, bool, int]]], kernels: Kernels
) -> None:
    rows = RequestRows(max_num_seqs=MAX_NUM_SEQS, max_blocks_per_seq=MAX_BLOCKS)
    builder = InputBuilder(rows, max_num_batched_tokens=2, block_size=BLOCK_SIZE, kernels=kernels)
    requests = [request(f"r{i}", i + 1) for i in range(MAX_NUM_SEQS)]
    for each in requests:
        rows.enter(Entry(each, each.prompt_token_ids, 0))
    by_id = {each.id: each for each in requests}
    for number, plan in enumerate(plans):
        chunks = [chunk(requests[who], start, length, samples, first) for who, start, length, samples, first in plan]
        check(builder.build(StepPlan(number, tuple(chunks), 100)), chunks, by_id)


def test_rows_are_given_back_and_a_newcomer_does_not_inherit_a_table() -> None:
    rows = RequestRows(max_num_seqs=1, max_blocks_per_seq=4)
    first, second = request("first", 1), request("second", 1)
    table = (BlockId(3), BlockId(1))
    for each in (first, second, first):
        row = rows.enter(Entry(each, each.prompt_token_ids, 0))
        rows.block_tables[row] = 9
        rows.refresh_tables([row], [table])
        assert rows.block_tables[row].tolist() == [3, 1, 9, 9]
        assert rows.leave(each.id) == row
    assert rows.leave(RequestId("never came")) is None
