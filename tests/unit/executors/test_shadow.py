"""The shadow memory finds out wrong copies: by the next token of whoever reads them, or at once."""

import pytest

from evenflow.core.block_pool import BlockId
from evenflow.core.plan import BlockCopy, Chunk, Entry, StepPlan
from evenflow.core.request import Request, RequestId, SamplingParams
from evenflow.executors.shadow import ShadowExecutor

A = Request(RequestId("a"), (1, 2, 3, 4, 5), SamplingParams(), 0.0)


def copies(*pairs: tuple[int, int]) -> tuple[BlockCopy, ...]:
    return tuple(BlockCopy(BlockId(source), BlockId(target)) for source, target in pairs)


def chunk(start: int, token_ids: tuple[int, ...], *blocks: int) -> Chunk:
    return Chunk(A.id, start, token_ids, tuple(map(BlockId, blocks)), True)


def prefilled() -> tuple[ShadowExecutor, int]:
    """A's five tokens are in blocks 0, 1 and 2; and the token that it said."""
    shadow = ShadowExecutor(num_blocks=8, block_size=2, vocab_size=1 << 40, num_host_blocks=4)
    plan = StepPlan(1, (chunk(0, A.prompt_token_ids, 0, 1, 2),), 10, entered=(Entry(A, A.prompt_token_ids, 0),))
    return shadow, shadow.execute(plan).sampled[A.id]


def next_token(*, out: tuple[BlockCopy, ...], into: tuple[BlockCopy, ...]) -> int:
    """After A was swapped out, its blocks were written by somebody else, and it came back to blocks 5, 6 and 7."""
    shadow, said = prefilled()
    other = Request(RequestId("b"), (9,) * 6, SamplingParams(), 0.0)
    table = tuple(map(BlockId, (2, 1, 0)))
    theirs = Chunk(other.id, 0, other.prompt_token_ids, table, False)
    shadow.execute(StepPlan(2, (theirs,), 10, entered=(Entry(other, other.prompt_token_ids, 0),), swap_out=out))
    return shadow.execute(StepPlan(3, (chunk(5, (said,), 5, 6, 7),), 10, swap_in=into)).sampled[A.id]


OUT, IN = copies((0, 3), (1, 2), (2, 1)), copies((3, 5), (2, 6), (1, 7))


def test_right_copies_change_nothing() -> None:
    shadow, said = prefilled()
    undisturbed = shadow.execute(StepPlan(2, (chunk(5, (said,), 0, 1, 2),), 10)).sampled[A.id]
    assert next_token(out=OUT, into=IN) == undisturbed


def test_wrong_copies_give_a_wrong_token() -> None:
    right = next_token(out=OUT, into=IN)
    assert next_token(out=OUT, into=copies((2, 5), (3, 6), (1, 7))) != right, "two blocks changed places"
    assert next_token(out=OUT, into=copies((3, 5), (3, 6), (1, 7))) != right, "one block came back twice"
    assert next_token(out=OUT, into=IN[:2]) != right, "the last block was not copied back"


@pytest.mark.parametrize(
    "plan",
    [
        StepPlan(2, (), 10, swap_out=copies((6, 0))),
        StepPlan(2, (), 10, swap_in=copies((0, 6))),
    ],
    ids=["out", "in"],
)
def test_a_copy_of_a_block_that_nobody_wrote_is_an_error(plan: StepPlan) -> None:
    shadow, _ = prefilled()
    with pytest.raises(AssertionError, match="nobody wrote"):
        shadow.execute(plan)


def test_two_copies_into_one_block_are_an_error() -> None:
    shadow, _ = prefilled()
    with pytest.raises(AssertionError, match="two copies"):
        shadow.execute(StepPlan(2, (), 10, swap_out=copies((0, 1), (1, 1))))


def test_blocks_go_out_before_others_come_in() -> None:
    """In one step, what was in block 0 goes to the host, and what was in block 1 comes back to it."""
    shadow, said = prefilled()
    shadow.execute(StepPlan(2, (), 10, swap_out=copies((1, 0), (2, 1))))
    shadow.execute(StepPlan(3, (), 10, swap_out=copies((0, 2)), swap_in=copies((0, 0))))
    back = StepPlan(4, (chunk(5, (said,), 5, 0, 2),), 10, swap_in=copies((2, 5)))
    undisturbed, _ = prefilled()
    expected = undisturbed.execute(StepPlan(2, (chunk(5, (said,), 0, 1, 2),), 10)).sampled[A.id]
    assert shadow.execute(back).sampled[A.id] == expected
