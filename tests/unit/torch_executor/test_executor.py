"""The torch executor against the same model without a cache; its log-probabilities; swapped blocks."""

import random
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
from evenflow.executors.torch.kv_memory import KVMemory

MODEL = tiny_llama()
BLOCK_SIZE = 4


def executor(*, blocks: int = 40, seqs: int = 4, host: KVMemory | None = None) -> TorchExecutor:
    memory = KVMemory(CONFIG, num_blocks=blocks, block_size=BLOCK_SIZE, dtype=torch.float32)
    return TorchExecutor(
        MODEL,
        PagedAttention(memory, CONFIG),
        memory,
        max_num_seqs=seqs,
        max_num_batched_tokens=8,
        max_model_len=blocks * BLOCK_SIZE,
        seeds=random.Random(0),
        host_memory=host,
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


def test_a_swapped_out_request_goes_on_from_other_blocks() -> None:
    host = KVMemory(CONFIG, num_blocks=3, block_size=BLOCK_SIZE, dtype=torch.float32)
    device = executor(blocks=4, host=host)
    first = request("first", 9, SamplingParams(temperature=0))
    second = request("second", 16, SamplingParams(temperature=0))
    blocks = [BlockId(i) for i in range(4)]

    def run(each: Request, *, start: int, tokens: list[int], table: list[BlockId], enter: bool = False) -> int:
        entered = (Entry(each, (*each.prompt_token_ids[:start], *tokens), 0),) if enter else ()
        chunk = Chunk(each.id, start, tuple(tokens), tuple(table), True)
        plan = StepPlan(1, (chunk,), 100, entered=entered, swaps=tuple(swaps), left=tuple(left))
        return device.execute(plan).sampled[each.id]

    swaps: list[BlockCopy] = []
    left: list[RequestId] = []
    said = [run(first, start=0, tokens=list(first.prompt_token_ids), table=blocks[:3], enter=True)]
    swaps = [BlockCopy(blocks[i], BlockId(2 - i), to_host=True) for i in range(3)]
    run(second, start=0, tokens=list(second.prompt_token_ids), table=blocks, enter=True)
    swaps = [BlockCopy(BlockId(2 - i), blocks[3 - i], to_host=False) for i in range(3)]
    left = [second.id]
    said.append(run(first, start=9, tokens=said, table=blocks[:0:-1]))
    assert said == speak(MODEL, first.prompt_token_ids, 2)


def test_swaps_happen_in_the_order_of_the_plan() -> None:
    host = KVMemory(CONFIG, num_blocks=1, block_size=BLOCK_SIZE, dtype=torch.float32)
    device = executor(blocks=8, host=host)
    first, second = (request(name, 3, SamplingParams(temperature=0)) for name in ("first", "second"))
    zero, one, other = BlockId(0), BlockId(1), BlockId(5)
    chunks = tuple(Chunk(r.id, 0, r.prompt_token_ids, (b,), True) for r, b in ((first, zero), (second, one)))
    entries = tuple(Entry(r, r.prompt_token_ids, 0) for r in (first, second))
    said = dict(device.execute(StepPlan(1, chunks, 100, entered=entries)).sampled)
    # The only host block takes the first request's block, gives it back, and takes the second's.
    swaps = tuple(
        BlockCopy(source, target, to_host)
        for source, target, to_host in (
            (zero, zero, True),
            (zero, other, False),
            (one, zero, True),
            (zero, zero, False),
        )
    )
    chunks = tuple(Chunk(r.id, 3, (said[r.id],), (b,), True) for r, b in ((first, other), (second, zero)))
    after = device.execute(StepPlan(2, chunks, 100, swaps=swaps)).sampled
    for each in (first, second):
        assert [said[each.id], after[each.id]] == speak(MODEL, each.prompt_token_ids, 2)


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
