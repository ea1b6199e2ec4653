"""Greedy text of a real model is transformers' token by token, however the scheduler cuts, mixes and evicts the work.

What the prompts say in one batch is shown to transformers once, whole: where its best next token after every prefix is
what evenflow said, its own greedy text is the same, by induction. That is one pass for each prompt, not for each token.
Logits agree within 1e-3, not bit by bit, so a token that wins by less could go either way. The prompts were therefore
chosen, once, so that the winner is always clear; `test_in_one_batch_they_say_what_transformers_says` keeps that honest.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pytest
import torch
from transformers import AutoModelForCausalLM

from evenflow.core.events import Event, Finished, Preempted, Scheduled, StepRecord
from evenflow.core.request import Request, RequestId, SamplingParams
from evenflow.engine.build import assemble
from evenflow.engine.config import Capabilities, EngineConfig, resolve
from evenflow.engine.core import EngineCore
from evenflow.engine.messages import Add
from evenflow.executors.torch.build import LoadedTorchModel, load
from evenflow.models.source import resolve_model
from evenflow.models.tokenizer import load_tokenizer

pytestmark = [pytest.mark.model, pytest.mark.slow]

MAX_TOKENS = 64
CLEAR_WIN = 2e-3
BLOCK_SIZE = 16

SYSTEM = (
    "<|im_start|>system\nYou are a careful assistant. Answer in plain words, give one example where it helps, and say "
    "so when you do not know. Never invent a source, a number or a name.<|im_end|>\n<|im_start|>user\n"
)
QUESTIONS = (
    "What makes bread rise?",
    "Why is the sky blue?",
    "Name three rivers in Africa.",
    "How do vaccines work?",
    "Write a short poem about autumn leaves.",
    "What is the difference between a list and a tuple in Python?",
    "Explain what a queue is to a child.",
    "How many days are there in a leap year?",
)
TEXTS = (
    "The capital of France is",
    "Once upon a time, in a village by the sea,",
    "def fibonacci(n):\n    ",
    "1, 2, 3, 5, 8, 13,",
    "The three laws of motion are:",
    "A recipe for pancakes:\n\n1.",
    "中国的首都是",
    "import numpy as np\n\ndef softmax(x):\n",
    "To be, or not to be",
    "In 1969, the first humans",
    "Water boils at",
    "Continuous batching refills a batch at every iteration instead of waiting for its longest member. A long prompt "
    "is cut into chunks, so that the streams beside it do not stall; a full memory evicts whoever came last; and what "
    "two prompts have in common is computed once. In other words,",
)
ALONE = (0, 5, 6, 11, 12)  # of PROMPTS: short, digits, Chinese, the longest text and a chat
PROMPTS = (*TEXTS, *(f"{SYSTEM}{question}<|im_end|>\n<|im_start|>assistant\n" for question in QUESTIONS))


@pytest.fixture(scope="module")
def prompts() -> list[tuple[int, ...]]:
    tokenizer = load_tokenizer(resolve_model("smollm2-135m"))
    return [tuple(tokenizer.encode(prompt)) for prompt in PROMPTS]


@pytest.fixture(scope="module")
def model() -> LoadedTorchModel:
    return load(str(resolve_model("smollm2-135m")), dtype="fp32")


@dataclass(slots=True, eq=False)
class Run:
    token_ids: Mapping[str, list[int]]
    events: list[Event]

    def of(self, kind: type[Event]) -> list[Event]:
        return [event for event in self.events if isinstance(event, kind)]


# The vllm preset sets aside no memory for answers, so that they outgrow it.
CONFIG = EngineConfig(block_size=BLOCK_SIZE, prefix_caching=False, watermark=0.0, paranoid=True, policy="vllm")


def engine(model: LoadedTorchModel, config: EngineConfig, *, blocks: int) -> EngineCore:
    per_block = model.bytes_per_block(config.block_size)
    capabilities = Capabilities(model.max_position_embeddings, model.vocab_size, per_block, free_memory=4 << 30)
    resolved = resolve(replace(config, kv_memory=str(blocks * per_block)), capabilities)
    executor = model.executor(
        num_blocks=resolved.num_blocks,
        block_size=resolved.block_size,
        max_num_seqs=resolved.max_num_seqs,
        max_num_batched_tokens=resolved.max_num_batched_tokens,
        max_model_len=resolved.max_model_len,
    )
    return assemble(resolved, executor, paranoid=config.paranoid)


def run(core: EngineCore, prompts: Mapping[str, tuple[int, ...]]) -> Run:
    """All at once, to the end."""
    sampling = SamplingParams(max_tokens=MAX_TOKENS, temperature=0.0, ignore_eos=True)
    token_ids: dict[str, list[int]] = defaultdict(list)
    events: list[Event] = []
    for name, prompt in prompts.items():
        core.accept(Add(Request(RequestId(name), prompt, sampling, arrival_time=0.0)))
    while core.has_work:
        result = core.step()
        events += result.events
        for output in result.outputs:
            token_ids[output.request_id] += output.token_ids
    assert not [event for event in events if isinstance(event, Finished) and event.num_output_tokens != MAX_TOKENS]
    return Run(token_ids, events)


def named(prompts: Sequence[tuple[int, ...]], prefix: str = "") -> dict[str, tuple[int, ...]]:
    return {f"{prefix}{index}": prompt for index, prompt in enumerate(prompts)}


Texts = list[list[int]]


@pytest.fixture(scope="module")
def together(model: LoadedTorchModel, prompts: Sequence[tuple[int, ...]]) -> Run:
    """All prompts in one batch, each prefilled in one piece."""
    return run(engine(model, replace(CONFIG, max_num_batched_tokens=4096), blocks=512), named(prompts))


@pytest.fixture(scope="module")
def texts(together: Run, prompts: Sequence[tuple[int, ...]]) -> Texts:
    return [together.token_ids[str(index)] for index in range(len(prompts))]


def assert_equal(token_ids: Mapping[str, list[int]], texts: Texts, prefix: str = "") -> None:
    assert token_ids == {f"{prefix}{index}": expected for index, expected in enumerate(texts)}


@torch.inference_mode()
def test_in_one_batch_they_say_what_transformers_says(
    prompts: Sequence[tuple[int, ...]], together: Run, texts: Texts
) -> None:
    """In fp32, from the same file; the end-of-sequence token is a token like any other.

    The prompts are evenflow's tokens: transformers makes a .gguf file's tokenizer without its digit rule.
    """
    path = resolve_model("smollm2-135m")
    transformer = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
    assert len(texts) == 20
    for prompt, said in zip(prompts, texts, strict=True):
        logits = transformer(torch.tensor([[*prompt, *said[:-1]]])).logits[0, len(prompt) - 1 :]
        best = logits.topk(2)
        assert said == best.indices[:, 0].tolist()
        assert len(said) == MAX_TOKENS
        assert (best.values[:, 0] - best.values[:, 1]).min() > CLEAR_WIN
    steps = [event for event in together.events if isinstance(event, StepRecord)]
    assert [len(step.emitted) for step in steps] == [len(prompts)] * MAX_TOKENS


@pytest.mark.parametrize("index", ALONE)
def test_alone(model: LoadedTorchModel, prompts: Sequence[tuple[int, ...]], texts: Texts, index: int) -> None:
    """When nothing runs beside it; a token at a time, so a few prompts have to do."""
    assert run(engine(model, CONFIG, blocks=64), {"it": prompts[index]}).token_ids == {"it": texts[index]}


def test_in_chunks(model: LoadedTorchModel, prompts: Sequence[tuple[int, ...]], texts: Texts) -> None:
    chunked = run(engine(model, replace(CONFIG, max_num_batched_tokens=24), blocks=512), named(prompts))
    assert_equal(chunked.token_ids, texts)
    steps = [event for event in chunked.events if isinstance(event, StepRecord)]
    assert max(step.prefill_tokens + step.decode_tokens for step in steps) == 24
    assert any(step.prefill_tokens and step.decode_tokens for step in steps)


def test_after_preemption(model: LoadedTorchModel, prompts: Sequence[tuple[int, ...]], texts: Texts) -> None:
    pressed = run(engine(model, CONFIG, blocks=40), named(prompts))
    assert_equal(pressed.token_ids, texts)
    assert len(pressed.of(Preempted)) >= 5


def test_with_prefix_hits(model: LoadedTorchModel, prompts: Sequence[tuple[int, ...]], texts: Texts) -> None:
    """Everything twice: at first the system prompt is shared with those that come after, then all of every prompt."""
    core = engine(model, replace(CONFIG, prefix_caching=True, max_num_batched_tokens=64), blocks=512)
    first, second = run(core, named(prompts, "first")), run(core, named(prompts, "second"))
    assert_equal(first.token_ids, texts, "first")
    assert_equal(second.token_ids, texts, "second")
    assert cached_tokens(first) >= 2 * BLOCK_SIZE
    assert cached_tokens(second) >= sum((len(prompt) - 1) // BLOCK_SIZE * BLOCK_SIZE for prompt in prompts)


def test_with_prefix_hits_after_preemption(
    model: LoadedTorchModel, prompts: Sequence[tuple[int, ...]], texts: Texts
) -> None:
    pressed = run(engine(model, replace(CONFIG, prefix_caching=True), blocks=40), named(prompts))
    assert_equal(pressed.token_ids, texts)
    assert len(pressed.of(Preempted)) >= 5
    assert cached_tokens(pressed) > 0


def cached_tokens(run: Run) -> int:
    return sum(event.cached_tokens for event in run.events if isinstance(event, Scheduled))
