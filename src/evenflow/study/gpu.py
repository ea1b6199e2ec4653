"""The device of the study when none is given: a data-sheet GPU with a model of 8 billion parameters.

Computed, not measured: 3.35 TB/s and 990 TFLOP/s of bf16, of which half is reached in matrix products; 8.0e9 weights in
bf16; 32 layers with 8 KV heads of 128, so 128 KiB of KV for a token; 80 GB of memory. A step reads the weights once
(4.8 ms), computes 16 GFLOP for a token (32 us), reads the KV of every position that a decode attends to (39 ns), and
takes half a millisecond to launch. Steps scatter by a few per cent.
"""

from evenflow.simulate.cost import Identity, Kind, Regime, Spread, StepCost

_BYTES_PER_SECOND = 3.35e12
_FLOPS = 0.5 * 990e12
_WEIGHTS = 8.0e9
_KV_BYTES = 2 * 32 * 8 * 128 * 2
_MEMORY = 80e9
_USED = 0.9
_ATTENTION_FLOPS = 4 * 32 * 4096
"""For each pair of a query and a position: 32 layers of 4,096, a product with the key and one with the value."""


def study_gpu() -> StepCost:
    return StepCost(
        identity=Identity(
            Kind.ROOFLINE,
            machine="80 GB, 3.35 TB/s, 990 TFLOP/s bf16",
            model="8 billion parameters, bf16",
            engine="none",
            description="a GPU of 80 GB and 3.35 TB/s with a model of 8 billion parameters",
        ),
        fixed_seconds=5e-4,
        weight_seconds=2 * _WEIGHTS / _BYTES_PER_SECOND,
        token_seconds=2 * _WEIGHTS / _FLOPS,
        request_seconds=5e-6,
        prefill_context_seconds=_ATTENTION_FLOPS / _FLOPS,
        decode_context_seconds=_KV_BYTES / _BYTES_PER_SECOND,
        spreads=tuple(
            Spread(regime, sigma, 0)
            for regime, sigma in ((Regime.DECODE, 0.03), (Regime.MIXED, 0.05), (Regime.PREFILL, 0.04))
        ),
        kv_tokens=int((_USED * _MEMORY - 2 * _WEIGHTS) / _KV_BYTES),
        notes=("computed from a data sheet: shapes and ratios mean something, single figures do not",),
    )
