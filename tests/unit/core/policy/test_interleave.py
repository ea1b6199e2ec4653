"""How the pieces split a step between decodes and prefills."""

import pytest

from evenflow.core.plan import WaitReason
from evenflow.core.policy.bound import Limits
from evenflow.core.policy.interleave import DecodeFirst, Demand, InOrder, Interleave, PrefillFirst, Shared, TokenSplit
from evenflow.core.request import Request, RequestId, RequestState, SamplingParams

ALL: list[Interleave] = [DecodeFirst(), PrefillFirst(2), InOrder(), Shared(0.25, 0.5)]
PREFILL_SHARE, DECODE_SHARE = WaitReason.PREFILL_SHARE, WaitReason.DECODE_SHARE


def running(*remaining: int) -> list[RequestState]:
    """Requests with so many tokens to compute, front to back."""
    states = []
    for index, count in enumerate(remaining):
        request = Request(RequestId(f"r{index}"), (1,) * 20, SamplingParams(), 0.0)
        states.append(RequestState(request, key=(index,), num_computed_tokens=20 - count))
    return states


def limits(seats: int) -> Limits:
    return Limits(max_num_seqs=seats, max_num_batched_tokens=16, max_model_len=64, num_blocks=8, block_size=4)


@pytest.mark.parametrize(
    ("budget", "num_decodes", "decode_tokens", "prefill_tokens"),
    [(8, 0, 0, 8), (8, 3, 3, 5), (8, 8, 8, 0), (2, 5, 2, 0)],
)
def test_decodes_come_first_and_prefills_share_the_rest(
    budget: int, num_decodes: int, decode_tokens: int, prefill_tokens: int
) -> None:
    assert DecodeFirst().split(Demand(budget, num_decodes, 99)) == TokenSplit(decode_tokens, prefill_tokens)


def test_prefills_come_first_and_decodes_get_the_rest() -> None:
    piece = PrefillFirst(max_skipped_steps=2)
    assert piece.split(Demand(8, 4, 5)) == TokenSplit(3, 5, decode_limit=DECODE_SHARE)
    assert piece.split(Demand(8, 4, 50)) == TokenSplit(0, 8, decode_limit=DECODE_SHARE)


def test_once_a_decode_was_left_out_often_enough_decodes_come_first() -> None:
    piece = PrefillFirst(max_skipped_steps=2)
    piece.stepped(1)
    assert piece.split(Demand(8, 4, 50)).decode_tokens == 0
    piece.stepped(2)
    assert piece.split(Demand(8, 4, 50)) == TokenSplit(4, 4)
    piece.stepped(0)
    assert piece.split(Demand(8, 4, 50)).decode_tokens == 0


def test_in_order_a_prefill_in_front_takes_what_decodes_behind_it_want() -> None:
    assert InOrder().split(Demand(8, 2, 9, running(1, 9, 1))) == TokenSplit(1, 7)
    assert InOrder().split(Demand(12, 2, 9, running(1, 9, 1))) == TokenSplit(2, 10)
    assert InOrder().split(Demand(2, 3, 0, running(1, 1, 1))) == TokenSplit(2, 0)
    assert InOrder().split(Demand(4, 0, 9, running(9))) == TokenSplit(0, 4)


def test_in_order_the_last_token_of_a_newcomers_prompt_is_no_decode() -> None:
    split = InOrder().split(Demand(2, 2, 1, running(1, 1, 1), {RequestId("r0")}))
    assert split == TokenSplit(1, 1)


def test_each_kind_has_a_share_that_the_other_cannot_take() -> None:
    piece = Shared(min_share=0.25, max_share=0.5)
    assert piece.split(Demand(8, 20, 50)) == TokenSplit(6, 2)
    assert piece.split(Demand(8, 1, 50)) == TokenSplit(1, 4, PREFILL_SHARE)
    assert piece.split(Demand(8, 0, 50)) == TokenSplit(0, 8)
    assert piece.split(Demand(8, 20, 1)) == TokenSplit(7, 1)
    assert piece.split(Demand(8, 20, 0)) == TokenSplit(8, 0)


def test_a_share_is_a_token_at_least_but_never_the_only_one() -> None:
    assert Shared(0.01, 0.01).split(Demand(2, 9, 9)) == TokenSplit(1, 1)
    assert Shared(0.9, 1.0).split(Demand(1, 9, 9)).decode_tokens == 1
    assert Shared(0.0, 0.0).split(Demand(4, 9, 9)) == TokenSplit(4, 0)


@pytest.mark.parametrize("piece", ALL, ids=lambda piece: piece.name)
def test_a_split_never_exceeds_the_budget_and_leaves_no_step_empty(piece: Interleave) -> None:
    for budget in range(2, 9):
        for decodes in range(6):
            for backlog in range(6):
                wanted = running(*[1] * decodes, *[backlog] * (backlog > 1))
                split = piece.split(Demand(budget, decodes, backlog if backlog > 1 else 0, wanted))
                assert split.decode_tokens + split.prefill_tokens <= budget
                wanted_prefill = backlog if backlog > 1 else 0
                served = min(decodes, split.decode_tokens) + min(wanted_prefill, split.prefill_tokens)
                assert served > 0 or not (decodes or wanted_prefill)


@pytest.mark.parametrize(
    ("piece", "budget", "gap"),
    [
        (DecodeFirst(), 16, 0),
        (DecodeFirst(), 3, 3),
        (PrefillFirst(5), 16, 5),
        (PrefillFirst(5), 4, 7),
        (Shared(0.25, 0.5), 16, 0),
        (Shared(0.5, 0.5), 8, 2),
    ],
)
def test_the_decode_gap_is_the_rounds_it_takes_to_serve_every_seat(piece: Interleave, budget: int, gap: int) -> None:
    (bound,) = (b for b in piece.bounds(limits(10), lambda _: budget) if b.name == "decode_gap_steps")
    assert bound.value == gap


def test_in_order_promises_no_decode_gap() -> None:
    (bound,) = InOrder().bounds(limits(4), lambda _: 16)
    assert bound.value is None
    assert bound.sentence.startswith("None:")


@pytest.mark.parametrize(
    ("piece", "budget", "num_decodes", "tokens"),
    [
        (DecodeFirst(), 16, 9, 7),
        (DecodeFirst(), 4, 9, 0),
        (PrefillFirst(1), 16, 9, 7),
        (InOrder(), 4, 9, 0),
        (Shared(0.25, 0.5), 16, 9, 7),
        (Shared(0.25, 0.5), 16, 1, 8),
        (Shared(0.25, 0.5), 4, 9, 1),
    ],
)
def test_the_prefill_that_a_step_always_has_room_for(
    piece: Interleave, budget: int, num_decodes: int, tokens: int
) -> None:
    assert piece.guaranteed_prefill(budget, num_decodes) == tokens


@pytest.mark.parametrize("piece", [*ALL, Shared(0.0, 0.0)], ids=lambda piece: piece.name)
def test_a_budget_that_exceeds_the_decodes_leaves_a_token_for_whoever_comes_in(piece: Interleave) -> None:
    for skipped in (0, 2):  # as many steps as make the prefills wait for the decodes
        piece.stepped(skipped)
        for decodes in range(9):
            split = piece.split(Demand(9, decodes, 9, running(*[1] * decodes), (), 0))
            assert split.prefill_tokens >= 1
