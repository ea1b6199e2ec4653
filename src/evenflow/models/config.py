"""`ModelConfig`: the shape of a model, the same whether it came from a Hugging Face folder or from a GGUF file.

What a family adds to Llama is in `architectures.py`; here it is resolved to plain values, layer by layer where layers
differ, so that nothing downstream asks for an architecture's name. No torch: the HTTP front reads this too.
"""

from dataclasses import dataclass

from evenflow.core.errors import ModelError
from evenflow.models.architectures import Activation

# Wider than any model served today by a factor of ten or more; a header beyond this is broken or hostile.
MAX_DIMENSION = 1 << 24
MAX_LAYERS = 1024


@dataclass(frozen=True, slots=True)
class LinearScaling:
    """Positions are divided by `factor`."""

    factor: float


@dataclass(frozen=True, slots=True)
class Llama3Scaling:
    """Long waves are stretched by `factor`, short ones kept, those between blended."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int


@dataclass(frozen=True, slots=True)
class YarnScaling:
    """NTK-by-parts interpolation; `attention_factor` multiplies cos and sin."""

    factor: float
    original_max_position_embeddings: int
    attention_factor: float
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True


@dataclass(frozen=True, slots=True)
class FrequencyFactors:
    """One divisor per frequency, as GGUF files of Llama 3 carry them."""

    factors: tuple[float, ...]


RopeScaling = LinearScaling | Llama3Scaling | YarnScaling | FrequencyFactors


@dataclass(frozen=True, slots=True)
class RopeConfig:
    theta: float
    scaling: RopeScaling | None = None


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """`sliding_windows[layer]` is the number of positions, itself included, that a token of that layer sees.

    `ropes[layer]` is that layer's rotary embedding. `norm_weight_offset` is what the file's norm weights lack.
    Raises ModelError, naming `source`, for numbers that cannot be a model.
    """

    source: str
    architecture: str
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_position_embeddings: int
    rms_norm_eps: float
    ropes: tuple[RopeConfig, ...]
    sliding_windows: tuple[int | None, ...]
    attention_scale: float
    activation: Activation
    tie_word_embeddings: bool
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    post_norms: bool = False
    norm_weight_offset: float = 0.0
    embedding_scale: float | None = None

    def __post_init__(self) -> None:
        for name in (
            "hidden_size",
            "intermediate_size",
            "num_heads",
            "num_kv_heads",
            "head_dim",
            "vocab_size",
            "max_position_embeddings",
        ):
            value = getattr(self, name)
            self._require(0 < value <= MAX_DIMENSION, f"{name} must be between 1 and {MAX_DIMENSION}, not {value}")
        self._require(
            0 < self.num_layers <= MAX_LAYERS, f"num_layers must be between 1 and {MAX_LAYERS}, not {self.num_layers}"
        )
        self._require(
            self.num_heads % self.num_kv_heads == 0,
            f"num_heads ({self.num_heads}) is not a multiple of num_kv_heads ({self.num_kv_heads})",
        )
        self._require(self.head_dim % 2 == 0, f"head_dim must be even, not {self.head_dim}")
        self._require(0.0 < self.rms_norm_eps < 1.0, f"rms_norm_eps must be a small number, not {self.rms_norm_eps}")
        for rope in self.ropes:
            self._require(0.0 < rope.theta < float("inf"), f"rope theta must be above 0, not {rope.theta}")
            if isinstance(rope.scaling, FrequencyFactors):
                factors = rope.scaling.factors
                self._require(
                    len(factors) == self.head_dim // 2 and min(factors) > 0.0,
                    f"rope needs {self.head_dim // 2} frequency factors above 0, not {len(factors)}",
                )
        for window in self.sliding_windows:
            self._require(window is None or window >= 1, f"sliding_window must be at least 1, not {window}")
        assert len(self.ropes) == self.num_layers, "one rope per layer"
        assert len(self.sliding_windows) == self.num_layers, "one window (or None) per layer"

    def _require(self, condition: bool, message: str) -> None:
        if not condition:
            raise ModelError(f"{self.source}: {message}.")
