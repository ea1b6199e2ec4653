"""The torch executor against the same model without a cache; its log-probabilities; swapped blocks."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest
import torch

from contract.executor_world import Shape, play
from contract.tiny_llama import CONFIG, VOCAB_SIZE, logits_of, speak, tiny_llama
from evenflow.core.block_pool import BlockId
from evenflow.core.plan import BlockCopy, Chunk, Entry, StepPlan, TokenLogprobs
from evenflow.core.request import Request, RequestId, SamplingParams
from evenflow.executors.torch import executor as executor_module
from evenflow.executors.torch.attention import PagedAttention
from evenflow.executors.torch.executor import TorchExecutor
from evenflow.executors.torch.host_memory import HostMemory
from evenflow.executors.torch.kv_memory import KVMemory, bytes_per_block

MODEL = tiny_llama()
BLOCK_SIZE = 4


def executor(*, blocks: int = 40, seqs: int = 4, host_blocks: int = 0) -> TorchExecutor:
    memory = KVMemory(CONFIG, num_blocks=blocks, block_size=BLOCK_SIZE, dtype=torch.float32)
    return TorchExecutor(
        MODEL,
        PagedAttention(memory, CONFIG),
        memory,
        max_num_seqs=seqs,
        max_num_batched_tokens=8,
        max_model_len=blocks * BLOCK_SIZE,
        seeds=random.Random(0),
        num_host_blocks=host_blocks,
    )


def shape(*, budget: int, blocks: int = 40, prefix_caching: bool = True) -> Shape:
    return Shape(blocks, BLOCK_SIZE, budget, seqs=4, vocab_size=VOCAB_SIZE, prefix_caching=prefix_caching)


def request(name: str, num_prompt_tokens: int, sampling: SamplingParams) -> Request:
    rng = random.Random(name)
    return Request(RequestId(name), tuple(rng.randrange(VOCAB_SIZE) for _ in range(num_prompt_tokens)), sampling, 0.0)


@pytest.mark.parametrize("budget", [2, 7, 1000])
def test_greedy_text_is_that_of_the_model_without_a_cache(budget: int) -> None:
    requests = [request(f"r{i}", 3 + 5 * i, SamplingParams(temperature=0, max_tokens=12)) for i in range(5)]
    played = play(executor(), requests, shape(budget=budget))
    for each in requests:
        assert played.outputs[each.id] == speak(MODEL, each.prompt_token_ids, 12)


def entry(each: Request, said: Sequence[int] = ()) -> Entry:
    return Entry(each, (*each.prompt_token_ids, *said), 0)


def report(logits: torch.Tensor, token_id: int, num_top: int) -> TokenLogprobs:
    values = torch.log_softmax(logits.double(), 0).tolist()
    order = sorted(range(VOCAB_SIZE), key=lambda other: (-values[other], other))
    top = tuple((other, values[other]) for other in order[:num_top])
    return TokenLogprobs(token_id, values[token_id], order.index(token_id) + 1, top)


def assert_like(actual: list[TokenLogprobs], expected: list[TokenLogprobs]) -> None:
    assert [(r.token_id, r.rank, [t for t, _ in r.top]) for r in actual] == [
        (r.token_id, r.rank, [t for t, _ in r.top]) for r in expected
    ]
    for ours, theirs in zip(actual, expected, strict=True):
        assert ours.logprob == pytest.approx(theirs.logprob, abs=1e-3)
        assert [value for _, value in ours.top] == pytest.approx([value for _, value in theirs.top], abs=1e-3)


@pytest.mark.parametrize("budget", [3, 1000])
def test_logprobs_are_the_models_own_whatever_the_sampling(budget: int) -> None:
    edited = SamplingParams(
        max_tokens=5, seed=1, top_k=3, temperature=2.0, repetition_penalty=2.0, logit_bias=((5, 50.0),), logprobs=4
    )
    asking, silent = request("asking", 9, edited), request("silent", 9, SamplingParams(max_tokens=5))
    played = play(executor(), [silent, asking], shape(budget=budget))
    text = [*asking.prompt_token_ids, *played.outputs[asking.id]]
    logits = logits_of(MODEL, text)
    assert_like(played.logprobs[asking.id], [report(logits[8 + i], text[9 + i], 4) for i in range(5)])
    assert played.logprobs.keys() == {asking.id}


@pytest.mark.parametrize("budget", [2, 7, 1000])
def test_prompt_logprobs_cover_the_prompt_but_its_first_token(budget: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor_module, "LOGPROB_ROWS", 5)
    asking = request("asking", 17, SamplingParams(temperature=0, max_tokens=3, prompt_logprobs=2))
    other = request("other", 11, SamplingParams(temperature=0, max_tokens=3))
    played = play(executor(), [other, asking], shape(budget=budget))
    prompt = asking.prompt_token_ids
    logits = logits_of(MODEL, prompt)
    assert_like(played.prompt_logprobs[asking.id], [report(logits[i], prompt[i + 1], 2) for i in range(16)])
    for plan, outcome in played.steps:
        chunks = {chunk.request_id: chunk for chunk in plan.chunks}
        for request_id, entries in outcome.prompt_logprobs.items():
            chunk = chunks[request_id]
            after = range(chunk.start + 1, min(chunk.start + len(chunk.token_ids), len(prompt) - 1) + 1)
            assert [entry.token_id for entry in entries] == [prompt[position] for position in after]


def copies(sources: Iterable[int], targets: Iterable[int]) -> tuple[BlockCopy, ...]:
    return tuple(BlockCopy(BlockId(a), BlockId(b)) for a, b in zip(sources, targets, strict=True))


def test_a_swapped_out_request_goes_on_from_other_blocks() -> None:
    device = executor(blocks=4, host_blocks=3)
    first = request("first", 9, SamplingParams(temperature=0))
    second = request("second", 16, SamplingParams(temperature=0))
    blocks = tuple(BlockId(i) for i in range(4))
    chunk = Chunk(first.id, 0, first.prompt_token_ids, blocks[:3], True)
    said = [device.execute(StepPlan(1, (chunk,), 100, entered=(entry(first),))).sampled[first.id]]
    chunk = Chunk(second.id, 0, second.prompt_token_ids, blocks, True)
    out = copies([0, 1, 2], [2, 1, 0])
    device.execute(StepPlan(2, (chunk,), 100, entered=(entry(second),), left=(first.id,), swap_out=out))
    chunk = Chunk(first.id, 9, (said[0],), blocks[:0:-1], True)
    back = copies([2, 1, 0], [3, 2, 1])
    plan = StepPlan(3, (chunk,), 100, entered=(entry(first, said),), left=(second.id,), swap_in=back)
    said.append(device.execute(plan).sampled[first.id])
    assert said == speak(MODEL, first.prompt_token_ids, 2)


def test_a_block_is_copied_out_before_it_is_filled_from_the_host() -> None:
    """Two requests change places in one step."""
    device = executor(blocks=1, host_blocks=2, seqs=1)
    first, second = (request(name, 3, SamplingParams(temperature=0)) for name in ("first", "second"))
    table = (BlockId(0),)
    said: dict[RequestId, list[int]] = {first.id: [], second.id: []}

    def run(number: int, each: Request, other: Request, out: Sequence[int], back: Sequence[int]) -> None:
        known = said[each.id]
        start = len(each.prompt_token_ids) if known else 0
        chunk = Chunk(each.id, start, (*each.prompt_token_ids, *known)[start:], table, True)
        swaps = copies([0] * len(out), out), copies(back, [0] * len(back))
        outcome = device.execute(
            StepPlan(
                number,
                (chunk,),
                100,
                entered=(entry(each, known),),
                left=(other.id,) if number > 1 else (),
                swap_out=swaps[0],
                swap_in=swaps[1],
            )
        )
        assert (outcome.swap_seconds > 0) == bool(out or back)
        assert outcome.swap_seconds <= outcome.device_seconds
        known.append(outcome.sampled[each.id])

    run(1, first, second, [], [])
    run(2, second, first, [0], [])
    run(3, first, second, [1], [0])
    run(4, second, first, [0], [1])
    for each in (first, second):
        assert said[each.id] == speak(MODEL, each.prompt_token_ids, 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8])
def test_a_block_comes_back_from_the_host_bit_by_bit(dtype: torch.dtype) -> None:
    """Every byte of every layer, whatever a block is made of, and nothing beside it."""
    memory = KVMemory(CONFIG, num_blocks=5, block_size=BLOCK_SIZE, dtype=dtype)
    host = HostMemory(memory.tensors, num_blocks=3)
    torch.manual_seed(0)
    for tensor in memory.tensors:
        tensor.random_()
    before = [tensor.clone() for tensor in memory.tensors]
    host.copy_out(copies([4, 1], [2, 0]))
    for tensor in memory.tensors:
        tensor[:, [1, 4]] = 0
    host.copy_in(copies([0, 2], [3, 1]))
    for tensor, old in zip(memory.tensors, before, strict=True):
        assert torch.equal(tensor[:, [0, 2, 3, 1]], old[:, [0, 2, 1, 4]])
        assert not tensor[:, 4].any()
    assert sum(tensor[:, 0].numel() * tensor.element_size() for tensor in memory.tensors) == bytes_per_block(
        CONFIG, BLOCK_SIZE, dtype
    )


def test_a_plan_without_chunks_only_lets_go() -> None:
    device = executor(seqs=1)
    for name in ("first", "second"):
        each = request(name, 3, SamplingParams(temperature=0))
        entry = Entry(each, each.prompt_token_ids, 0)
        chunk = Chunk(each.id, 0, each.prompt_token_ids, (BlockId(0),), True)
        assert device.execute(StepPlan(1, (chunk,), 10, entered=(entry,))).sampled.keys() == {each.id}
        assert device.execute(StepPlan(2, (), 10, left=(each.id,))).sampled == {}


def test_an_id_that_comes_back_does_not_inherit_what_the_first_asked_for() -> None:
    curious = request("same", 5, SamplingParams(temperature=0, max_tokens=2, logprobs=1, prompt_logprobs=1))
    incurious = replace(curious, sampling=SamplingParams(temperature=0, max_tokens=3), arrival_time=50.0)
    played = play(executor(seqs=1), [curious, incurious], shape(budget=10))
    assert len(played.outputs[curious.id]) == 2 + 3
    assert len(played.logprobs[curious.id]) == 2
    assert len(played.prompt_logprobs[curious.id]) == 4
