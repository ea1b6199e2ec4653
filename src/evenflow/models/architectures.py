"""Which architectures evenflow runs, as a table: one row says in what a model differs from Llama.

Every row is the same decoder: embed, then per layer (norm, attention over rotated q and k, norm, gated MLP) with two
residual additions, then a last norm and the head. A row switches on what its family adds:

              q/k/v bias   q,k norm  norms after  norm adds 1  activation  embedding*sqrt(h)  sliding layers
    llama     config says  -         -            -            silu        -                  none
    mistral   -            -         -            -            silu        -                  all, if it has a window
    qwen2     always       -         -            -            silu        -                  from max_window_layers on
    qwen3     config says  yes       -            -            silu        -                  from max_window_layers on
    gemma3    config says  yes       yes          yes          gelu_tanh   yes                all but every sixth

SmolLM2 is a `llama`. `gguf_name` is None where GGUF files call the family by another row's name (Mistral is `llama`
there). `gguf_interleaves_rope`: the file stores the rows of q and k so that rotated pairs are neighbours, and loading
puts them back into halves.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class Activation(Enum):
    SILU = "silu"
    GELU_TANH = "gelu_tanh"


class SlidingLayers(Enum):
    """Which layers see only a window of the context, for files that do not list it layer by layer."""

    NONE = "none"
    ALL = "all"
    FROM_MAX_WINDOW_LAYERS = "from max_window_layers on"
    ALL_BUT_EVERY_NTH = "all but every n-th"


@dataclass(frozen=True, slots=True)
class Architecture:
    name: str
    gguf_name: str | None
    qkv_bias: bool | None = None
    """None: `attention_bias` of the file says it, and then also for the output projection."""
    mlp_bias: bool = False
    """Whether `mlp_bias` of the file may switch on biases in the MLP."""
    qk_norm: bool = False
    post_norms: bool = False
    norm_weight_offset: float = 0.0
    activation: Activation = Activation.SILU
    scales_embedding: bool = False
    sliding_layers: SlidingLayers = SlidingLayers.NONE
    default_sliding_window: int | None = None
    default_head_dim: int | None = None
    default_rope_theta: float = 10_000.0
    default_local_rope_theta: float | None = None
    """Not None: sliding layers rotate with a theta of their own."""
    ties_embeddings: bool = False
    gguf_interleaves_rope: bool = False


_ROWS = (
    Architecture("llama", gguf_name="llama", mlp_bias=True, gguf_interleaves_rope=True),
    Architecture(
        "mistral",
        gguf_name=None,
        qkv_bias=False,
        sliding_layers=SlidingLayers.ALL,
        default_sliding_window=4096,
        gguf_interleaves_rope=True,
    ),
    Architecture(
        "qwen2",
        gguf_name="qwen2",
        qkv_bias=True,
        sliding_layers=SlidingLayers.FROM_MAX_WINDOW_LAYERS,
        default_sliding_window=4096,
    ),
    Architecture(
        "qwen3",
        gguf_name="qwen3",
        qk_norm=True,
        sliding_layers=SlidingLayers.FROM_MAX_WINDOW_LAYERS,
        default_sliding_window=4096,
        default_head_dim=128,
    ),
    Architecture(
        "gemma3_text",
        gguf_name="gemma3",
        qk_norm=True,
        post_norms=True,
        norm_weight_offset=1.0,
        activation=Activation.GELU_TANH,
        scales_embedding=True,
        sliding_layers=SlidingLayers.ALL_BUT_EVERY_NTH,
        default_sliding_window=4096,
        default_head_dim=256,
        default_rope_theta=1_000_000.0,
        default_local_rope_theta=10_000.0,
        ties_embeddings=True,
    ),
)

ARCHITECTURES: Mapping[str, Architecture] = {row.name: row for row in _ROWS}
GGUF_ARCHITECTURES: Mapping[str, Architecture] = {row.gguf_name: row for row in _ROWS if row.gguf_name is not None}
