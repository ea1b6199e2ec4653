"""A request's log-probabilities are its own to the last bit: not the batch's, the chunking's, the cache's, a
preemption's or a swap's. In int8 because integer sums are exact, in bf16 because every sum has a fixed order.

What is compared is everything that `logprobs=20` reports at every position: the token, its log-probability (which
depends on all 49,152 logits), its rank and the 20 likeliest. The plain torch path does not promise this.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import pytest

from evenflow.core.events import Event, Preempted, Scheduled, StepRecord
from evenflow.core.plan import TokenLogprobs
from evenflow.core.policy.preemption import PreemptionMode
from evenflow.core.request import Request, RequestId, SamplingParams
from evenflow.engine.build import assemble
from evenflow.engine.config import Capabilities, EngineConfig, resolve
from evenflow.engine.core import EngineCore
from evenflow.engine.messages import Add
from evenflow.executors.torch.build import LoadedTorchModel, load
from evenflow.kernels.native import load_kernels
from evenflow.models.source import resolve_model
from evenflow.models.tokenizer import load_tokenizer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.model,
    pytest.mark.skipif(load_kernels().table is None, reason="what the native kernels promise"),
]

PARAGRAPH = (
    "Continuous batching refills a batch at every iteration instead of waiting for its longest member. A long prompt "
    "is cut into chunks, so that the streams beside it do not stall; a full memory evicts whoever came last; and what "
    "two prompts have in common is computed once. In the year 1865 a girl fell down a rabbit hole, very slowly. "
)
EventT = TypeVar("EventT", bound=Event)
MAX_TOKENS = 12
NUM_TOP = 20
SUBJECT = "subject"


@dataclass(slots=True, eq=False)
class Run:
    """What the subject was told, and what happened."""

    prompt_logprobs: list[TokenLogprobs] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def of(self, kind: type[EventT]) -> list[EventT]:
        return [event for event in self.events if isinstance(event, kind)]


@pytest.fixture(
    scope="module",
    params=[("int8", "bf16"), ("none", "bf16"), ("int8", "int8"), ("none", "int8")],
    ids=["int8", "bf16", "int8 with int8 KV", "bf16 with int8 KV"],
)
def model(request: pytest.FixtureRequest) -> LoadedTorchModel:
    quantize, kv_dtype = request.param
    return load(str(resolve_model("smollm2-135m")), dtype="bf16", quantize=quantize, kv_dtype=kv_dtype, seed=0)


@pytest.fixture(scope="module")
def words() -> tuple[int, ...]:
    return tuple(load_tokenizer(resolve_model("smollm2-135m")).encode(PARAGRAPH * 8))


@pytest.fixture(scope="module")
def prompt(words: tuple[int, ...]) -> tuple[int, ...]:
    """Longer than a partition of attention, and no whole number of anything."""
    return words[:571]


@pytest.fixture(scope="module")
def alone(model: LoadedTorchModel, prompt: tuple[int, ...]) -> Run:
    """In one chunk, with the engine to itself."""
    run = play(engine(model, budget=1000), prompt)
    assert [len(event.emitted) for event in run.events if isinstance(event, StepRecord)] == [1] * MAX_TOKENS
    assert len({entry.logprob for entry in run.logprobs}) == MAX_TOKENS
    return run


def engine(
    model: LoadedTorchModel, *, budget: int, blocks: int = 200, prefix_caching: bool = False, host_blocks: int = 0
) -> EngineCore:
    """Whoever is preempted is swapped, if there are host blocks."""
    config = EngineConfig(
        max_num_batched_tokens=budget,
        block_size=16,
        prefix_caching=prefix_caching,
        watermark=0.0,
        policy="vllm",
        paranoid=True,
    )
    per_block = model.bytes_per_block(config.block_size)
    capabilities = Capabilities(model.max_position_embeddings, model.vocab_size, per_block, free_memory=4 << 30)
    config = replace(config, kv_memory=str(blocks * per_block))
    if host_blocks:
        config = replace(config, host_kv_memory=str(host_blocks * per_block), policy_set=("preemption=swap",))
    resolved = resolve(config, capabilities)
    executor = model.executor(
        num_blocks=resolved.num_blocks,
        block_size=resolved.block_size,
        max_num_seqs=resolved.max_num_seqs,
        max_num_batched_tokens=resolved.max_num_batched_tokens,
        max_model_len=resolved.max_model_len,
        num_host_blocks=resolved.num_host_blocks,
    )
    return assemble(resolved, executor, paranoid=config.paranoid)


def play(
    core: EngineCore,
    prompt: tuple[int, ...],
    company: Iterable[tuple[int, ...]] = (),
    *,
    prompt_logprobs: int | None = NUM_TOP,
) -> Run:
    """The company comes first, and the subject joins it two steps later."""
    silent = SamplingParams(max_tokens=40, temperature=0.0, ignore_eos=True)
    curious = replace(silent, max_tokens=MAX_TOKENS, logprobs=NUM_TOP, prompt_logprobs=prompt_logprobs)
    for index, other in enumerate(company):
        core.accept(Add(Request(RequestId(f"other-{index}"), other, silent, arrival_time=0.0)))
    run = Run()
    for _ in range(2):
        if core.has_work:
            run.events += core.step().events
    core.accept(Add(Request(RequestId(SUBJECT), prompt, curious, arrival_time=1.0)))
    while core.has_work:
        result = core.step()
        run.events += result.events
        for output in result.outputs:
            if output.request_id == SUBJECT:
                run.prompt_logprobs += output.prompt_logprobs
                run.logprobs += [] if output.logprobs is None else [output.logprobs]
    return run


def assert_same_bits(run: Run, alone: Run) -> None:
    assert len(run.logprobs) == MAX_TOKENS
    assert run.logprobs == alone.logprobs
    if run.prompt_logprobs:
        assert run.prompt_logprobs == alone.prompt_logprobs


def others(words: Sequence[int], count: int) -> list[tuple[int, ...]]:
    """Prompts of different lengths, none the beginning of another."""
    return [tuple(words[7 * index : 7 * index + 5 + 23 * index]) for index in range(1, count + 1)]


@pytest.mark.parametrize("budget", [5, 16, 33, 100, 300])
def test_in_chunks(model: LoadedTorchModel, prompt: tuple[int, ...], alone: Run, budget: int) -> None:
    run = play(engine(model, budget=budget), prompt)
    assert_same_bits(run, alone)
    assert max(event.prefill_tokens for event in run.events if isinstance(event, StepRecord)) == budget


@pytest.mark.parametrize("budget", [64, 1000])
def test_in_company(
    model: LoadedTorchModel, words: tuple[int, ...], prompt: tuple[int, ...], alone: Run, budget: int
) -> None:
    run = play(engine(model, budget=budget), prompt, others(words, 12))
    assert_same_bits(run, alone)
    beside = [event.num_scheduled for event in run.events if isinstance(event, StepRecord) if SUBJECT in event.emitted]
    assert len(beside) == MAX_TOKENS
    assert min(beside) > 1


def test_after_preemption(model: LoadedTorchModel, words: tuple[int, ...], prompt: tuple[int, ...], alone: Run) -> None:
    run = play(engine(model, budget=90, blocks=56), prompt, others(words, 4), prompt_logprobs=None)
    assert_same_bits(run, alone)
    assert SUBJECT in {event.request_id for event in run.events if isinstance(event, Preempted)}


@pytest.mark.parametrize("prefix_caching", [False, True], ids=["copied", "what is still cached is not copied"])
def test_after_a_swap(
    model: LoadedTorchModel, words: tuple[int, ...], prompt: tuple[int, ...], alone: Run, prefix_caching: bool
) -> None:
    core = engine(model, budget=90, blocks=56, host_blocks=100, prefix_caching=prefix_caching)
    run = play(core, prompt, others(words, 4), prompt_logprobs=None)
    assert_same_bits(run, alone)
    assert {event.mode for event in run.of(Preempted) if event.request_id == SUBJECT} == {PreemptionMode.SWAP}
    assert sum(event.swapped_in_tokens for event in run.of(Scheduled) if event.request_id == SUBJECT) > 0
    steps = run.of(StepRecord)
    fed = sum(count for step in steps for request_id, count in step.scheduled if request_id == SUBJECT)
    assert fed == len(prompt) + MAX_TOKENS - 1, "something was computed twice"


def test_with_a_prefix_hit(
    model: LoadedTorchModel, words: tuple[int, ...], prompt: tuple[int, ...], alone: Run
) -> None:
    """The prefix was computed by another request, in other chunks, in company."""
    core = engine(model, budget=50, prefix_caching=True)
    play(core, (*prompt[:-30], *words[:50]), others(words, 5), prompt_logprobs=None)
    run = play(core, prompt, others(words, 3), prompt_logprobs=None)
    assert_same_bits(run, alone)
    hits = [event.cached_tokens for event in run.events if isinstance(event, Scheduled) if event.request_id == SUBJECT]
    assert hits == [(len(prompt) - 30) // 16 * 16]
