"""What every executor promises: a token for whoever samples, and the same tokens whatever else is going on.

The torch executors run a tiny random Llama, with greedy and seeded sampling: in fp32, where a token that wins by less
than rounding would show, and in bf16 and int8 as a program of kernels. The shadow memory runs digests.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pytest
import torch

from contract.executor_world import Played, Shape, play
from contract.tiny_llama import CONFIG, VOCAB_SIZE, tiny_llama
from evenflow.core.block_pool import BlockId
from evenflow.core.plan import BlockCopy, StepPlan
from evenflow.core.ports import Executor
from evenflow.core.request import Request, RequestId, SamplingParams
from evenflow.engine.clock import VirtualClock
from evenflow.executors.shadow import ShadowExecutor
from evenflow.executors.simulated import HostLink, SimulatedExecutor
from evenflow.executors.torch.attention import PagedAttention
from evenflow.executors.torch.executor import TorchExecutor
from evenflow.executors.torch.kv_memory import KVMemory
from evenflow.executors.torch.native_llama import NativeLlama
from evenflow.kernels.abi import KernelTable
from evenflow.kernels.native import Kernels, load_kernels
from evenflow.kernels.native_operators import select_operators
from evenflow.models.linear import Bf16Linear, Int8Linear
from evenflow.models.llama import LlamaModel

MODEL = tiny_llama()


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """So little work is done soonest by one."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def _torch(shape: Shape, kernels: Kernels) -> Executor:
    memory = KVMemory(CONFIG, num_blocks=shape.blocks, block_size=shape.block_size, dtype=torch.float32)
    return TorchExecutor(
        MODEL,
        PagedAttention(memory, CONFIG, kernels=kernels),
        memory,
        max_num_seqs=shape.seqs,
        max_num_batched_tokens=shape.budget,
        max_model_len=shape.blocks * shape.block_size,
        seeds=random.Random(0),
        num_host_blocks=shape.host_blocks,
    )


def _program(shape: Shape, model: LlamaModel, table: KernelTable, kv_dtype: torch.dtype = torch.bfloat16) -> Executor:
    memory = KVMemory(CONFIG, num_blocks=shape.blocks, block_size=shape.block_size, dtype=kv_dtype)
    program = NativeLlama(model, memory, table, max_num_batched_tokens=shape.budget)
    return TorchExecutor(
        program,
        program,
        memory,
        max_num_seqs=shape.seqs,
        max_num_batched_tokens=shape.budget,
        max_model_len=shape.blocks * shape.block_size,
        seeds=random.Random(0),
        num_host_blocks=shape.host_blocks,
    )


def _programs(kernels: Kernels) -> "dict[str, Kind]":
    """None where there are no kernels to run them."""
    table, operators = kernels.table, select_operators(kernels)
    if table is None:
        return {}
    int8 = tiny_llama(lambda weight: Int8Linear(weight, None, operators))
    bf16 = tiny_llama(lambda weight: Bf16Linear(weight.bfloat16(), None, operators), torch.bfloat16)
    return {
        "int8": Kind(lambda shape: _program(shape, int8, table), 16),
        "bf16": Kind(lambda shape: _program(shape, bf16, table), 16),
        "int8, int8 KV": Kind(lambda shape: _program(shape, int8, table, torch.int8), 16),
        "bf16, int8 KV": Kind(lambda shape: _program(shape, bf16, table, torch.int8), 16),
    }


def _shadow(shape: Shape) -> Executor:
    return ShadowExecutor(
        num_blocks=shape.blocks,
        block_size=shape.block_size,
        vocab_size=shape.vocab_size,
        num_host_blocks=shape.host_blocks,
    )


def _simulated(shape: Shape) -> Executor:
    link = HostLink(bytes_per_block=4096, bytes_per_second=1e9)
    return SimulatedExecutor(lambda plan: 0.001 * plan.num_tokens, VirtualClock().advance, link)


@dataclass(frozen=True, slots=True)
class Kind:
    """An executor, and a block size that it likes."""

    make: Callable[[Shape], Executor]
    block_size: int


SIMULATED = Kind(_simulated, 4)
READ_THEIR_MEMORY = {
    "shadow": Kind(_shadow, 4),
    "torch": Kind(lambda shape: _torch(shape, Kernels(None, None, "the test says so")), 4),
    "native": Kind(lambda shape: _torch(shape, load_kernels()), 16),
    **_programs(load_kernels()),
}
EVERY = {**READ_THEIR_MEMORY, "simulated": SIMULATED}

every_kind = pytest.mark.parametrize("kind", EVERY.values(), ids=EVERY)
every_kind_that_reads_its_memory = pytest.mark.parametrize("kind", READ_THEIR_MEMORY.values(), ids=READ_THEIR_MEMORY)

SAMPLINGS = (
    SamplingParams(temperature=0),
    SamplingParams(temperature=0.8),
    SamplingParams(temperature=1.0, top_p=0.9, top_k=40),
    SamplingParams(temperature=0.7, min_p=0.02, presence_penalty=1.0, frequency_penalty=0.5, repetition_penalty=1.2),
    SamplingParams(temperature=0, repetition_penalty=1.1, logit_bias=((3, 2.0),)),
)


ORDERS = ("fcfs", "priority")


def workload(rng: random.Random, kind: Kind) -> tuple[list[Request], Shape]:
    """A dozen requests that share prefixes, in a pool that holds one of any length, or a few."""
    size = kind.block_size
    shape = Shape(
        blocks=rng.choice([7, 9]),
        block_size=size,
        budget=rng.choice([3, size + 1, 4 * size]),
        seqs=rng.choice([2, 4, 8]),
        vocab_size=VOCAB_SIZE,
        prefix_caching=rng.random() < 0.8,
        order=rng.choice(ORDERS),
        host_blocks=rng.choice([0, 4, 20]),
    )
    common = [rng.randrange(VOCAB_SIZE) for _ in range(2 * size)]
    requests = []
    for index in range(12):
        own = [rng.randrange(VOCAB_SIZE) for _ in range(rng.randrange(1, 2 * size))]
        sampling = replace(
            rng.choice(SAMPLINGS), max_tokens=rng.randrange(1, 3 * size), seed=rng.getrandbits(32), stop_token_ids=(7,)
        )
        prompt = (*common[: rng.randrange(2 * size)], *own)
        requests.append(Request(RequestId(f"r{index}"), prompt, sampling, float(index // 3), priority=rng.randrange(3)))
    return requests, shape


def alone(kind: Kind, request: Request) -> list[int]:
    """In one piece, with the engine to itself."""
    shape = Shape(10, kind.block_size, budget=10_000, seqs=1, vocab_size=VOCAB_SIZE, prefix_caching=False)
    return play(kind.make(shape), [request], shape).outputs[request.id]


@every_kind
def test_who_samples_gets_a_token_and_nobody_else(kind: Kind) -> None:
    requests, shape = workload(random.Random(1), kind)
    played = play(kind.make(shape), requests, shape)
    assert played.steps
    for plan, outcome in played.steps:
        assert list(outcome.sampled) == [chunk.request_id for chunk in plan.chunks if chunk.samples]
        assert all(0 <= token_id < VOCAB_SIZE for token_id in outcome.sampled.values())
        assert outcome.device_seconds >= 0.0


@pytest.mark.parametrize("rounds", [4, pytest.param(40, marks=pytest.mark.slow)])
@every_kind_that_reads_its_memory
def test_a_request_says_in_company_what_it_says_alone(kind: Kind, rounds: int) -> None:
    rng = random.Random(2)
    seen: list[Played] = []
    for _ in range(rounds):
        requests, shape = workload(rng, kind)
        seen.append(play(kind.make(shape), requests, shape))
        for request in requests:
            assert seen[-1].outputs[request.id] == alone(kind, request), request
    assert sum(played.num_preemptions for played in seen) >= 2 * rounds
    assert sum(played.num_cached_tokens for played in seen) >= 2 * rounds
    assert sum(played.num_partial_chunks for played in seen) >= 2 * rounds
    assert sum(played.num_swapped_in_tokens for played in seen) >= 2 * rounds


def test_simulated_copies_take_bytes_over_bandwidth_and_a_latency_for_each_step() -> None:
    clock = VirtualClock()
    link = HostLink(bytes_per_block=1000, bytes_per_second=4000.0, latency_seconds=0.5)
    executor = SimulatedExecutor(lambda plan: 2.0, clock.advance, link)
    copies = tuple(BlockCopy(BlockId(i), BlockId(i)) for i in range(3))
    for plan, swap_seconds in (
        (StepPlan(1, (), 10, swap_out=copies), 1.25),
        (StepPlan(2, (), 10, swap_out=copies[:2], swap_in=copies), 1.75),
        (StepPlan(3, (), 10), 0.0),
    ):
        before = clock.now()
        outcome = executor.execute(plan)
        assert (outcome.device_seconds, outcome.swap_seconds) == (2.0 + swap_seconds, swap_seconds)
        assert clock.now() - before == outcome.device_seconds


@every_kind_that_reads_its_memory
def test_an_abort_in_flight_leaves_the_others_alone(kind: Kind) -> None:
    requests, shape = workload(random.Random(3), kind)
    aborts = {request.id: 2 + 3 * index for index, request in enumerate(requests) if index % 3 == 0}
    played = play(kind.make(shape), requests, shape, aborts=aborts)
    for request in requests:
        said, expected = played.outputs[request.id], alone(kind, request)
        assert said == (expected[: len(said)] if request.id in aborts else expected)
    assert any(
        len(played.outputs[request_id]) < len(alone(kind, requests[int(request_id[1:])])) for request_id in aborts
    )


@every_kind_that_reads_its_memory
def test_an_id_may_come_back_as_another_request(kind: Kind) -> None:
    shape = Shape(4, kind.block_size, budget=8, seqs=1, vocab_size=VOCAB_SIZE)
    executor = kind.make(shape)
    for prompt, sampling in ((5, SAMPLINGS[3]), (6, SAMPLINGS[0]), (7, SAMPLINGS[3])):
        request = Request(RequestId("same"), (prompt, 1, 2), replace(sampling, max_tokens=6, seed=4), 0.0)
        assert play(executor, [request], shape).outputs[request.id] == alone(kind, request)
