"""The sampler against the reference, each request against its neighbours, and the bodies against each other."""

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evenflow.core.plan import Entry
from evenflow.core.request import Request, RequestId, SamplingParams
from evenflow.executors.torch.draw import block_times, token_times
from evenflow.executors.torch.logits import Logits
from evenflow.executors.torch.sampling import Sampler
from evenflow.executors.torch.vocab_blocks import BLOCK, block_maxima
from evenflow.kernels.native import Kernels
from unit.kernels.attention_world import FALLBACK, runnable_kernels
from unit.torch_executor.reference import could_win, distribution

Rows = list[list[float]]


def request(sampling: SamplingParams, *, prompt: Sequence[int] = (0,), eos: Sequence[int] = ()) -> Request:
    return Request(RequestId("r"), tuple(prompt), sampling, 0.0, eos_token_ids=tuple(eos))


def fresh(vocab_size: int, max_num_seqs: int = 16, kernels: Kernels | None = None) -> Sampler:
    return Sampler(max_num_seqs=max_num_seqs, vocab_size=vocab_size, seeds=random.Random(0), kernels=kernels)


def generate(
    requests: Sequence[Request], steps: Sequence[Rows], *, first_row: int = 0, kernels: Kernels | None = None
) -> list[list[int]]:
    """The output of each request over the steps; `steps[s][i]` are the logits of request i in step s."""
    sampler = fresh(len(steps[0][0]), kernels=kernels)
    rows = np.arange(first_row, first_row + len(requests))
    for row, each in zip(rows.tolist(), requests, strict=True):
        sampler.enter(row, Entry(each, each.prompt_token_ids, 0))
    outputs: list[list[int]] = [[] for _ in requests]
    for place, logits in enumerate(steps):
        tokens = sampler.sample(Logits(torch.tensor(logits, dtype=torch.float32)), rows, np.full(len(rows), place))
        for output, token_id in zip(outputs, tokens.tolist(), strict=True):
            output.append(token_id)
    return outputs


def one(
    sampling: SamplingParams, *steps: list[float], prompt: Sequence[int] = (0,), eos: Sequence[int] = ()
) -> list[int]:
    return generate([request(sampling, prompt=prompt, eos=eos)], [[logits] for logits in steps])[0]


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[Request], list[Rows]]:
    """A few requests of any parameters, and logits for a few steps; the vocabulary has one to three blocks."""
    vocab_size = draw(st.sampled_from([3, 8, 40, 256, 300, 768]))
    token_ids = st.integers(0, vocab_size - 1)
    params = st.builds(
        SamplingParams,
        max_tokens=st.just(10),
        temperature=st.sampled_from([0.0, 0.3, 1.0, 1.7]),
        top_p=st.sampled_from([1.0, 0.9, 0.5, 0.01]),
        top_k=st.sampled_from([0, 1, 2, 7, 50]),
        min_p=st.sampled_from([0.0, 0.05, 0.4, 1.0]),
        presence_penalty=st.sampled_from([0.0, 1.5, -1.0]),
        frequency_penalty=st.sampled_from([0.0, 0.7, -2.0]),
        repetition_penalty=st.sampled_from([1.0, 1.3, 0.5]),
        logit_bias=st.lists(st.tuples(token_ids, st.sampled_from([-100.0, -1.0, 2.0, 100.0])), max_size=2).map(tuple),
        seed=st.integers(-(2**63), 2**63 - 1),
        min_tokens=st.sampled_from([0, 2]),
        stop_token_ids=st.lists(token_ids, max_size=1).map(tuple),
        ignore_eos=st.booleans(),
    )
    requests = draw(
        st.lists(
            st.builds(request, params, prompt=st.lists(token_ids, min_size=1, max_size=4), eos=st.just((1,))),
            min_size=1,
            max_size=4,
        )
    )
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    spread = draw(st.sampled_from([2, 8, 30]))
    shape = (draw(st.integers(1, 4)), len(requests), vocab_size)
    steps: list[Rows] = (rng.integers(-spread * 4, spread * 4, shape, endpoint=True) / 4).tolist()
    return requests, steps


@given(batches())
def test_tokens_are_those_of_the_reference(batch: tuple[list[Request], list[Rows]]) -> None:
    requests, steps = batch
    outputs = generate(requests, steps)
    for index, (each, output) in enumerate(zip(requests, outputs, strict=True)):
        sampling = each.sampling
        assert sampling.seed is not None
        for place, token_id in enumerate(output):
            logits, before = steps[place][index], output[:place]
            # A filter's edge may fall on either side of a token whose share differs from it by a rounding.
            beside = (
                distribution(logits, each, before, top_p=sampling.top_p * (1 + d), min_p=sampling.min_p * (1 - d))
                for d in (0.0, 1e-6, -1e-6)
            )
            assert any(drawn(token_id, sampling, place, p) for p in beside)


def drawn(token_id: int, sampling: SamplingParams, place: int, probabilities: list[float]) -> bool:
    """Whether the races give this token: of the blocks, unless the row was filtered, then of the tokens."""
    if max(probabilities) == 1.0:
        return probabilities[token_id] == 1.0
    assert sampling.seed is not None
    seeds, places = np.array([sampling.seed % 2**64], dtype=np.uint64), np.array([place])
    filtered = 0 < sampling.top_k < len(probabilities) or sampling.top_p < 1 or sampling.min_p > 0
    block = token_id // BLOCK
    ids = range(len(probabilities)) if filtered else range(block * BLOCK, min(len(probabilities), (block + 1) * BLOCK))
    inside = [probabilities[i] for i in ids]
    if not could_win(ids.index(token_id), inside, token_times(seeds, places, np.array(ids)).tolist()):
        return False
    sums = [sum(probabilities[i : i + BLOCK]) for i in range(0, len(probabilities), BLOCK)]
    return filtered or could_win(block, sums, block_times(seeds, places, np.arange(len(sums))).tolist())


NATIVE = [kernels for kernels in runnable_kernels() if kernels is not FALLBACK]
EVERY_NATIVE = pytest.mark.parametrize("native", NATIVE, ids=lambda k: k.isa)


@EVERY_NATIVE
@given(batch=batches())
def test_every_body_gives_the_same_tokens(native: Kernels, batch: tuple[list[Request], list[Rows]]) -> None:
    requests, steps = batch
    assert generate(requests, steps, kernels=native) == generate(requests, steps, kernels=FALLBACK)


LARGE_VOCABULARIES = [49_152, 50_257]
KINDS = {
    "greedy": SamplingParams(temperature=0),
    "plain": SamplingParams(temperature=0.8),
    "hot": SamplingParams(temperature=5.0),
    "top_k": SamplingParams(top_k=50),
    "wide top_k": SamplingParams(temperature=3.0, top_k=3000),
    "top_p": SamplingParams(temperature=0.6, top_p=0.95),
    "wide top_p": SamplingParams(temperature=4.0, top_p=0.999),
    "min_p": SamplingParams(min_p=0.05),
    "all": SamplingParams(temperature=2.0, top_k=400, top_p=0.9, min_p=0.001),
}


def drawn_from_large(
    kernels: Kernels, dtype: torch.dtype, vocab_size: int, *, with_maxima: bool
) -> "np.ndarray[tuple[int, ...], np.dtype[np.int64]]":
    generator = torch.Generator().manual_seed(vocab_size)
    logits = (torch.randn(len(KINDS), vocab_size, generator=generator) * 4).to(dtype)
    logits[:, 7] = torch.nan
    sampler = fresh(vocab_size, kernels=kernels)
    rows = np.arange(len(KINDS))
    for row, sampling in enumerate(KINDS.values()):
        sampler.enter(row, Entry(request(replace(sampling, seed=row)), (0,), 0))
    known = torch.from_numpy(block_maxima(logits.nan_to_num(-torch.inf).float())) if with_maxima else None
    each = [sampler.sample(Logits(logits.clone(), known), rows, np.full(len(rows), place)) for place in range(20)]
    return np.stack(each)


FALLBACK_DRAWS = cache(partial(drawn_from_large, FALLBACK))  # one for all bodies: they take much longer to draw


@EVERY_NATIVE
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("vocab_size", LARGE_VOCABULARIES)
@pytest.mark.parametrize("with_maxima", [False, True], ids=["alone", "with maxima"])
def test_every_body_draws_the_same_from_a_large_vocabulary(
    native: Kernels, dtype: torch.dtype, vocab_size: int, with_maxima: bool
) -> None:
    drawn = drawn_from_large(native, dtype, vocab_size, with_maxima=with_maxima)
    assert np.array_equal(drawn, FALLBACK_DRAWS(dtype, vocab_size, with_maxima=with_maxima))
    assert len(np.unique(drawn[:, 1:])) > 20


@EVERY_NATIVE
def test_logits_are_left_as_they_are(native: Kernels) -> None:
    logits = torch.randn(2, 700, generator=torch.Generator().manual_seed(0))
    before = logits.clone()
    sampler = fresh(700, kernels=native)
    for row, sampling in enumerate((SamplingParams(logit_bias=((3, 50.0),)), SamplingParams(temperature=0.5))):
        sampler.enter(row, Entry(request(sampling), (0,), 0))
    assert sampler.sample(Logits(logits), np.arange(2), np.zeros(2, dtype=np.int64))[0] == 3
    assert torch.equal(logits, before)


@given(batches(), st.integers(0, 8))
def test_neighbours_and_row_numbers_change_nothing(batch: tuple[list[Request], list[Rows]], first_row: int) -> None:
    requests, steps = batch
    together = generate(requests, steps)
    backwards = generate(requests[::-1], [step[::-1] for step in steps], first_row=first_row)
    alone = [generate([each], [[step[i]] for step in steps])[0] for i, each in enumerate(requests)]
    assert together == backwards[::-1] == alone


@given(batches(), st.integers(1, 3))
def test_a_preemption_changes_nothing(batch: tuple[list[Request], list[Rows]], after: int) -> None:
    requests, steps = batch
    each = requests[0]
    logits = [torch.tensor([step[0]], dtype=torch.float32) for step in steps]
    sampler = fresh(logits[0].shape[1])
    output: list[int] = []
    seat = 0
    for place, row in enumerate(logits):
        if place % after == 0:
            sampler.leave(seat)
            seat = place + 1
            sampler.enter(seat, Entry(each, (*each.prompt_token_ids, *output), 0))
        output += sampler.sample(Logits(row), np.array([seat]), np.array([place])).tolist()
    assert output == generate([each], [[step[0]] for step in steps])[0]


def test_the_largest_logit_wins_and_the_lower_id_among_equals() -> None:
    assert one(SamplingParams(temperature=0), [0.0, 2.0, 1.0, 2.0], [-3.0, -3.0, -3.0, -3.0]) == [1, 0]
    long = [0.0] * 700
    long[699] = long[300] = 1.0
    assert one(SamplingParams(temperature=0), long) == [300]


def test_a_vanishing_temperature_is_greedy() -> None:
    assert one(SamplingParams(temperature=1e-300, seed=1), [0.0, 1.0, 0.999]) == [1]


def test_presence_and_frequency_count_the_output_and_not_the_prompt() -> None:
    logits = [1.0, 0.9, 0.0]
    assert one(SamplingParams(temperature=0, presence_penalty=0.5), *[logits] * 3) == [0, 1, 0]
    assert one(SamplingParams(temperature=0, frequency_penalty=0.3), *[logits] * 4) == [0, 1, 0, 1]


def test_repetition_penalty_counts_prompt_and_output_once() -> None:
    sampling = SamplingParams(temperature=0, repetition_penalty=1.5)
    assert one(sampling, *[[1.0, 0.9, 0.2]] * 3, prompt=[0]) == [1, 0, 0]
    assert one(sampling, [-1.0, -1.2, -5.0], prompt=[0]) == [1]


def test_bias_moves_a_logit_and_repeats_add_up() -> None:
    assert one(SamplingParams(temperature=0, logit_bias=((2, 1.5), (2, 1.5))), [2.0, 0.0, 0.0]) == [2]


def test_no_ending_token_before_min_tokens() -> None:
    logits = [9.0, 8.0, 1.0]
    sampling = SamplingParams(temperature=0, min_tokens=2, stop_token_ids=(1, 99))
    assert one(sampling, *[logits] * 3, eos=[0]) == [2, 2, 0]
    assert one(replace(sampling, ignore_eos=True), *[logits] * 3, eos=[0]) == [0, 0, 0]


def test_a_seed_gives_its_own_tokens_and_no_seed_a_drawn_one() -> None:
    flat = [[0.0] * 1000] * 8
    assert one(SamplingParams(seed=7), *flat) == one(SamplingParams(seed=7), *flat)
    assert one(SamplingParams(seed=7), *flat) != one(SamplingParams(seed=8), *flat)
    unseeded = generate([request(SamplingParams())] * 3, [[logits] * 3 for logits in flat])
    assert len({tuple(output) for output in unseeded}) == 3
    assert unseeded == generate([request(SamplingParams())] * 3, [[logits] * 3 for logits in flat])


# The 99.9 % point of chi-square with 11 degrees of freedom.
CHI_SQUARE_11 = 31.26


@pytest.mark.parametrize(
    "sampling",
    [
        SamplingParams(temperature=1.3),
        SamplingParams(temperature=1.3, top_k=12),
        SamplingParams(temperature=1.3, top_p=0.9999),
    ],
    ids=["plain", "top_k", "top_p"],
)
def test_tokens_come_as_often_as_their_probability(sampling: SamplingParams) -> None:
    logits = np.linspace(0.0, 3.0, 12)
    expected = np.exp(logits / 1.3) / np.exp(logits / 1.3).sum()
    draws = 4000
    sampler = fresh(12, max_num_seqs=draws)
    rows = np.arange(draws)
    for row in rows.tolist():
        sampler.enter(row, Entry(request(replace(sampling, seed=row)), (0,), 0))
    counts = np.zeros(12)
    for place in range(3):
        batch = torch.tensor(logits, dtype=torch.float32).repeat(draws, 1)
        counts += np.bincount(sampler.sample(Logits(batch), rows, np.full(draws, place)), minlength=12)
    assert ((counts - 3 * draws * expected) ** 2 / (3 * draws * expected)).sum() < CHI_SQUARE_11


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("kernels", runnable_kernels(), ids=lambda k: k.isa or "torch")
@pytest.mark.parametrize("sampling", [SamplingParams(temperature=0), SamplingParams(seed=3), SamplingParams(top_p=0.5)])
def test_spoiled_logits_give_a_defined_token_and_spare_the_neighbours(
    sampling: SamplingParams, kernels: Kernels
) -> None:
    spoiled: Rows = [[NAN] * 3, [NAN, 1.0, NAN], [-INF] * 3, [-INF, -INF, 0.0], [0.0, INF, 0.0], [NAN, -INF, INF]]
    good = [0.0, 1.0, 2.0]
    each, neighbour = request(sampling), request(SamplingParams(seed=9))
    outputs = [generate([each, neighbour], [[row, good]], kernels=kernels) for row in spoiled]
    assert [output[0][0] for output in outputs] == [0, 1, 0, 2, 1, 2]
    assert {output[1][0] for output in outputs} == {one(SamplingParams(seed=9), good)[0]}


def test_huge_and_tiny_logits_do_not_overflow() -> None:
    assert one(SamplingParams(temperature=0.01, seed=1), [3e38, -3e38, 0.0]) == [0]
    assert one(SamplingParams(temperature=100.0, top_p=0.9, seed=1), [-3e38, -3e38, 3e38]) == [2]
