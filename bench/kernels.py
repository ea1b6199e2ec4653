"""Micro-benchmarks of the CPU kernels against torch's own, interleaved, on the shapes of SmolLM2-135M.

    python bench/kernels.py [--isa avx512bf16,avx2] [--rounds 15]

One thread, and its own CPU time rather than the clock's, so that a busy neighbour disturbs little; contenders take
turns, so that it disturbs all alike, and so that each finds its weights outside the nearest caches, as a layer does.
The best of the rounds is shown. What several threads share (memory bandwidth) does not show here.
"""

import argparse
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from evenflow.executors.torch.attention import PagedAttention
from evenflow.executors.torch.kv_memory import KVMemory
from evenflow.executors.torch.layout import build_layout
from evenflow.kernels.native import INSTRUCTION_SETS, Kernels, load_kernels
from evenflow.kernels.native_operators import NativeOperators
from evenflow.kernels.operators import Gate, Operators, quantise_weight
from evenflow.kernels.torch_operators import TorchOperators

PRODUCTS = ((576, 960), (576, 576), (576, 3072), (1536, 576), (576, 49152))
BATCHES = (1, 8, 64, 256)
FALLBACK = Kernels(None, None, "benchmark")


@dataclass(frozen=True, slots=True)
class Shape:
    num_layers: int = 1
    num_heads: int = 9
    num_kv_heads: int = 3
    head_dim: int = 64
    sliding_windows: tuple[int | None, ...] = (None,)
    attention_scale: float = 0.125


def race(contenders: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Best CPU seconds of each."""
    best = dict.fromkeys(contenders, float("inf"))
    for turn in range(rounds + 1):  # the first warms up
        for name, run in contenders.items():
            began = time.thread_time()
            run()
            took = time.thread_time() - began
            if turn:
                best[name] = min(best[name], took)
    return best


def show(title: str, seconds: Mapping[str, float], flops: float | None = None) -> None:
    cells = (
        f"{name} {took * 1e6:8.0f} us" + (f" {flops / took / 1e9:6.0f} GFLOP/s" if flops else "")
        for name, took in seconds.items()
    )
    print(f"{title:34}", " | ".join(cells), flush=True)


def products(natives: Mapping[str, Kernels], rounds: int) -> None:
    for k, n in PRODUCTS:
        values, scales = quantise_weight(torch.randn(n, k))
        dense = torch.ops.mkldnn._reorder_linear_weight(torch.randn(n, k).bfloat16())
        for m in BATCHES:
            if m * n > 64 * 49152:
                continue
            activations = torch.randn(m, k).bfloat16()
            onednn = torch.ops.mkldnn._linear_pointwise
            contenders: dict[str, Callable[[], object]] = {
                "bf16 oneDNN": partial(onednn, activations, dense, None, "none", [], "")
            }
            everyone: dict[str, Operators] = {"_int_mm": TorchOperators()}
            everyone |= {isa: NativeOperators(kernels.table) for isa, kernels in natives.items() if kernels.table}
            for name, operators in everyone.items():
                packed, rows = operators.pack_int8(values, scales), operators.quantise(activations)
                contenders[name] = partial(operators.multiply_int8, rows, packed, torch.bfloat16)
            show(f"[{m}, {k}] x [{k}, {n}]", race(contenders, rounds), 2.0 * m * k * n)


def rows(natives: Mapping[str, Kernels], rounds: int) -> None:
    everyone: dict[str, Operators] = {"torch": TorchOperators()}
    everyone |= {isa: NativeOperators(kernels.table) for isa, kernels in natives.items() if kernels.table}
    hidden, gate_up, weight = torch.randn(64, 576), torch.randn(64, 3072).bfloat16(), torch.ones(576)
    added = torch.zeros(64, 576)
    norms = {
        name: partial(operators.rms_norm_int8, hidden, weight, 1e-5, added) for name, operators in everyone.items()
    }
    show("add, norm, quantise [64, 576]", race(norms, rounds))
    gates = {name: partial(operators.gated_int8, gate_up, Gate.SILU) for name, operators in everyone.items()}
    show("silu, quantise [64, 2 x 1536]", race(gates, rounds))


def attention(natives: Mapping[str, Kernels], rounds: int, dtype: torch.dtype) -> None:
    cases = {"64 decodes at 200": (64, 200, 1), "8 decodes at 2400": (8, 2400, 1), "1 decode at 4000": (1, 4000, 1)}
    cases |= {"prefill of 256 at 0": (1, 0, 256), "prefill of 256 at 2000": (1, 2000, 256)}
    for title, (num_seqs, context, length) in cases.items():
        runs = {
            name: attention_step(kernels, num_seqs, context, length, dtype)
            for name, kernels in {"torch": FALLBACK, **natives}.items()
        }
        show(f"{title}, {dtype} KV".replace("torch.", ""), race(runs, rounds))


def attention_step(
    kernels: Kernels, num_seqs: int, context: int, length: int, dtype: torch.dtype, block_size: int = 32
) -> Callable[[], object]:
    shape = Shape()
    blocks = -(-(context + length) // block_size)
    memory = KVMemory(shape, num_blocks=num_seqs * blocks, block_size=block_size, dtype=dtype)
    step = PagedAttention(memory, shape, kernels=kernels)
    tables = np.random.default_rng(0).permutation(num_seqs * blocks).astype(np.int32).reshape(num_seqs, blocks)
    q, k, v = (torch.randn(num_seqs * length, heads, 64).bfloat16() for heads in (9, 3, 3))

    starts = np.arange(num_seqs + 1, dtype=np.int32) * np.int32(length)
    contexts = np.full(num_seqs, context, dtype=np.int32)
    step.begin(build_layout(starts, contexts, tables, block_size=block_size))
    if dtype == torch.int8:
        memory.pool.random_(0x3A, 0x3C)  # as bytes small numbers, as floats (the scales) about 0.001
    else:
        memory.pool.view(dtype).normal_()
    return lambda: step(0, q, k, v)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--isa", default=",".join(INSTRUCTION_SETS[:-1]))
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(1)
    natives = {isa: kernels for isa in options.isa.split(",") if (kernels := load_kernels(isa)).table is not None}
    products(natives, options.rounds)
    rows(natives, options.rounds)
    for dtype in (torch.bfloat16, torch.int8):
        attention(natives, options.rounds, dtype)


if __name__ == "__main__":
    main()
