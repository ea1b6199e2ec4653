"""The small pieces of a decoder layer that are not matrix products: norms and the gated activation.

Both are computed in float32 whatever the model's dtype and rounded once at the end.
"""

from torch import Tensor
from torch.nn import functional

from evenflow.models.architectures import Activation


def rms_norm(hidden: Tensor, weight: Tensor, eps: float) -> Tensor:
    """`weight` is float32, already includes what its architecture adds to it, and may differ from head to head."""
    return functional.rms_norm(hidden.float(), hidden.shape[-1:], None, eps).mul_(weight).to(hidden.dtype)


def gated(gate_up: Tensor, activation: Activation) -> Tensor:
    """activation(gate) * up for gate and up side by side in the last dimension."""
    gate, up = gate_up.chunk(2, dim=-1)
    match activation:
        case Activation.SILU:
            return functional.silu(gate) * up
        case Activation.GELU_TANH:
            return functional.gelu(gate, approximate="tanh") * up
