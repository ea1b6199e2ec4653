"""A step's cost from two data sheets, a device's and a model's: what nobody has measured, but can be thought about.

    weights   bytes of all weights / memory bandwidth            read once a step
    token     2 x parameters / peak rate                         a multiplication and an addition each
    context   bytes of a token's keys and values / bandwidth     read for each position a decode attends to
    prefill   4 x heads x head size x layers / peak rate         for each pair of positions in a prompt

Devices reach a part of their peak: 80 % of the bandwidth and 50 % of the rate of computing are assumed, as good kernels
do, and 2 ms a step for launching and sampling. An upper half of what a good engine reaches, and no more than that: use
it to compare configurations, not to promise milliseconds.
"""

from collections.abc import Mapping
from typing import NamedTuple

from evenflow.core.errors import ConfigError
from evenflow.models.config import ModelConfig
from evenflow.simulate.cost import Identity, Kind, StepCost
from evenflow.simulate.cost_file import CostError
from evenflow.simulate.machine import this_engine

_BANDWIDTH_REACHED = 0.8
_RATE_REACHED = 0.5
_STEP_SECONDS = 0.002
_REQUEST_SECONDS = 5e-6
_USABLE_MEMORY = 0.9
_BYTES = 2  # bf16


class Device(NamedTuple):
    """Peaks as the maker's data sheet has them: dense bf16 operations a second, bytes a second, bytes."""

    title: str
    operations: float
    bandwidth: float
    memory: float


DEVICES: Mapping[str, Device] = {
    "a100-80gb": Device("NVIDIA A100 80 GB SXM", 312e12, 2.039e12, 80e9),
    "h100-80gb": Device("NVIDIA H100 80 GB SXM", 989e12, 3.35e12, 80e9),
    "h200-141gb": Device("NVIDIA H200 141 GB SXM", 989e12, 4.8e12, 141e9),
    "l4-24gb": Device("NVIDIA L4 24 GB", 121e12, 0.3e12, 24e9),
    "l40s-48gb": Device("NVIDIA L40S 48 GB", 362e12, 0.864e12, 48e9),
    "rtx4090-24gb": Device("NVIDIA GeForce RTX 4090 24 GB", 165e12, 1.008e12, 24e9),
    "mi300x-192gb": Device("AMD Instinct MI300X 192 GB", 1307e12, 5.3e12, 192e9),
}


def num_parameters(model: ModelConfig) -> int:
    """Of a decoder with gated feed-forward layers; norms and biases are left out, they are nothing."""
    queries, kv = model.num_heads * model.head_dim, model.num_kv_heads * model.head_dim
    attention = model.hidden_size * (2 * queries + 2 * kv)
    feed_forward = 3 * model.hidden_size * model.intermediate_size
    embeddings = model.vocab_size * model.hidden_size * (1 if model.tie_word_embeddings else 2)
    return model.num_layers * (attention + feed_forward) + embeddings


def roofline_cost(device_name: str, model: ModelConfig, *, devices: int = 1) -> StepCost:
    """Of so many devices that share every layer and lose nothing by it. Raises ConfigError, CostError."""
    device = DEVICES.get(device_name)
    if device is None:
        raise ConfigError(f"device must be one of {', '.join(DEVICES)}, not {device_name!r}")
    if not 1 <= devices <= 64:
        raise ConfigError(f"devices must be between 1 and 64, not {devices}")
    parameters = num_parameters(model)
    weights = parameters * _BYTES
    kv_per_token = 2 * model.num_layers * model.num_kv_heads * model.head_dim * _BYTES
    room = _USABLE_MEMORY * device.memory * devices - weights
    if room < kv_per_token * 1024:
        raise CostError(
            f"{model.source} has {weights / 1e9:.3g} GB of weights in bf16, too much for {devices} x {device.title}; "
            "use more devices"
        )
    bandwidth = device.bandwidth * devices * _BANDWIDTH_REACHED
    rate = device.operations * devices * _RATE_REACHED
    attended = 4 * model.num_heads * model.head_dim * model.num_layers
    title = f"{devices} x {device.title}"
    assumed = (
        f"computed from data sheets, not measured: {_BANDWIDTH_REACHED:.0%} of the bandwidth and {_RATE_REACHED:.0%} "
        f"of the peak rate, {_STEP_SECONDS * 1e3:g} ms a step; devices lose nothing by working together"
    )
    return StepCost(
        Identity(Kind.ROOFLINE, title, model.architecture, this_engine(), f"roofline of {title}"),
        fixed_seconds=_STEP_SECONDS,
        weight_seconds=weights / bandwidth,
        token_seconds=2 * parameters / rate,
        sharpness=4.0,
        request_seconds=_REQUEST_SECONDS,
        prefill_context_seconds=attended / rate,
        decode_context_seconds=kv_per_token / bandwidth,
        kv_tokens=int(room // kv_per_token),
        notes=(assumed,),
    )
