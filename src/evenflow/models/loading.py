"""From a path to a model that runs: read the config, open the weights, fuse and pack them layer by layer.

Layers are loaded side by side, each by one thread: dequantising, turning and packing are many small passes over memory,
of which one on all cores costs more than several on one core each. Embedding and head come first, as the largest parts.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from evenflow.core.errors import ConfigError
from evenflow.kernels.operators import Operators
from evenflow.models.config import ModelConfig
from evenflow.models.config_folder import read_folder_config
from evenflow.models.config_gguf import read_gguf_config
from evenflow.models.gguf_file import GGUFFile
from evenflow.models.linear import Bf16Linear, Int8Linear, Linear, pack
from evenflow.models.llama import DecoderLayer, LlamaModel
from evenflow.models.rotation import Rotation
from evenflow.models.source import is_gguf
from evenflow.models.weights import WeightSource
from evenflow.models.weights_folder import FolderWeights
from evenflow.models.weights_gguf import GGUFWeights

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


@dataclass(frozen=True, slots=True)
class _Form:
    """`matrix` is the dtype in which a matrix is read before `pack` puts it into the form that multiplies."""

    embedding: torch.dtype
    activation: torch.dtype
    matrix: torch.dtype
    pack: Callable[[Tensor, Tensor | None], Linear]


@torch.inference_mode()
def load_model(
    path: str | Path, dtype: str, *, int8: Operators | None = None, panels: Operators | None = None
) -> LlamaModel:
    """Load a model folder or a .gguf file, with every matrix in `dtype` ("fp32" or "bf16").

    With `int8` operators matrices become int8 (`dtype` is then the embedding's, and activations between the products
    are float32; the residual stream is rotated where the model allows it); with `panels`, bf16 matrices are packed for
    those operators instead of for oneDNN.
    """
    if dtype not in DTYPES:
        raise ConfigError(f"dtype '{dtype}' is not one of {', '.join(DTYPES)}.")
    chosen = DTYPES[dtype]
    if int8 is not None:
        form = _Form(chosen, torch.float32, torch.float32, partial(Int8Linear, operators=int8))
    elif panels is not None and chosen == torch.bfloat16:
        form = _Form(chosen, chosen, chosen, partial(Bf16Linear, operators=panels))
    else:
        form = _Form(chosen, chosen, chosen, pack)
    path = Path(path)
    if is_gguf(path):
        file = GGUFFile(path)
        config = read_gguf_config(file)
        weights = GGUFWeights(file, head_dim=config.head_dim)
        return _Builder(config, weights, form, _rotation(config, int8)).model()
    config = read_folder_config(path)
    with FolderWeights(path) as folder:
        return _Builder(config, folder, form, _rotation(config, int8)).model()


def _rotation(config: ModelConfig, int8: Operators | None) -> Rotation | None:
    return None if int8 is None or config.post_norms else Rotation(config.hidden_size)


class _Builder:
    """With a rotation, norms' weights move into the matrices, and become ones."""

    def __init__(self, config: ModelConfig, weights: WeightSource, form: _Form, rotation: Rotation | None) -> None:
        self._config = config
        self._weights = weights
        self._form = form
        self._rotation = rotation

    def model(self) -> LlamaModel:
        with _workers() as workers:
            ends = workers.submit(self._ends)
            layers = workers.map(self._layer, range(self._config.num_layers))
            embedding, norm, head = ends.result()
            decoder = list(layers)
        return LlamaModel(self._config, embedding, decoder, norm, head, self._form.activation)

    @torch.inference_mode()  # which is a thread's own
    def _ends(self) -> tuple[Tensor, Tensor, Linear]:
        """Embedding, last norm and head."""
        config = self._config
        shape = (config.vocab_size, config.hidden_size)
        if config.tie_word_embeddings:
            matrix = self._read("model.embed_tokens.weight", self._form.matrix, *shape)
            embedding = matrix.to(self._form.embedding, copy=self._rotation is not None)
        else:
            embedding = self._read("model.embed_tokens.weight", self._form.embedding, *shape)
            matrix = self._read("lm_head.weight", self._form.matrix, *shape)
        norm = self._norm("model.norm", config.hidden_size)
        if self._rotation is not None:
            self._rotation.turn_embedding(embedding)
        self._turn_reader(matrix, norm)
        return embedding, self._what_stays(norm), self._form.pack(matrix, None)

    @torch.inference_mode()
    def _layer(self, index: int) -> DecoderLayer:
        config, prefix = self._config, f"model.layers.{index}"
        hidden, inner = config.hidden_size, config.intermediate_size
        q_size, kv_size = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
        attn, mlp = f"{prefix}.self_attn", f"{prefix}.mlp"
        qkv = {f"{attn}.q_proj": q_size, f"{attn}.k_proj": kv_size, f"{attn}.v_proj": kv_size}
        after_attention = f"{prefix}.post_attention_layernorm"
        attention_norm = self._norm(f"{prefix}.input_layernorm", hidden)
        mlp_norm = self._norm(f"{prefix}.pre_feedforward_layernorm" if config.post_norms else after_attention, hidden)
        return DecoderLayer(
            attention_norm=self._what_stays(attention_norm),
            qkv=self._reader(qkv, attention_norm, bias=config.qkv_bias),
            qk_norm=self._qk_norm(attn) if config.qk_norm else None,
            output=self._writer(f"{attn}.o_proj", q_size, bias=config.output_bias),
            attention_post_norm=self._norm(after_attention, hidden) if config.post_norms else None,
            mlp_norm=self._what_stays(mlp_norm),
            gate_up=self._reader({f"{mlp}.gate_proj": inner, f"{mlp}.up_proj": inner}, mlp_norm, bias=config.mlp_bias),
            down=self._writer(f"{mlp}.down_proj", inner, bias=config.mlp_bias),
            mlp_post_norm=self._norm(f"{prefix}.post_feedforward_layernorm", hidden) if config.post_norms else None,
        )

    def _reader(self, parts: dict[str, int], norm: Tensor, *, bias: bool) -> Linear:
        """A matrix that reads the residual stream through a norm."""
        weight, biases = self._fused(parts, self._config.hidden_size, bias=bias)
        self._turn_reader(weight, norm)
        return self._form.pack(weight, biases)

    def _writer(self, name: str, in_features: int, *, bias: bool) -> Linear:
        """A matrix whose product is added to the residual stream."""
        weight, biases = self._fused({name: self._config.hidden_size}, in_features, bias=bias)
        if self._rotation is not None:
            self._rotation.turn_writer(weight, biases)
        return self._form.pack(weight, biases)

    def _turn_reader(self, weight: Tensor, norm: Tensor) -> None:
        if self._rotation is not None:
            self._rotation.turn_reader(weight, norm)

    def _what_stays(self, norm: Tensor) -> Tensor:
        return norm if self._rotation is None else torch.ones_like(norm)

    def _read(self, name: str, dtype: torch.dtype, *shape: int) -> Tensor:
        self._weights.require(name, shape)
        tensor = torch.empty(shape, dtype=dtype)
        self._weights.read_into(name, tensor)
        return tensor

    def _fused(self, parts: dict[str, int], in_features: int, *, bias: bool) -> tuple[Tensor, Tensor | None]:
        """One matrix whose rows are the parts, one below the other."""
        for name, rows in parts.items():
            self._weights.require(f"{name}.weight", (rows, in_features))
            if bias:
                self._weights.require(f"{name}.bias", (rows,))
        weight = torch.empty(sum(parts.values()), in_features, dtype=self._form.matrix)
        biases = torch.empty(len(weight), dtype=self._form.matrix) if bias else None
        start = 0
        for name, rows in parts.items():
            self._weights.read_into(f"{name}.weight", weight[start : start + rows])
            if biases is not None:
                self._weights.read_into(f"{name}.bias", biases[start : start + rows])
            start += rows
        return weight, biases

    def _norm(self, name: str, size: int) -> Tensor:
        """Norm weights stay float32: they are small, and Gemma's 1 + w loses w in bf16."""
        self._weights.require(f"{name}.weight", (size,))
        weight = torch.empty(size, dtype=torch.float32)
        self._weights.read_into(f"{name}.weight", weight)
        return weight + self._config.norm_weight_offset

    def _qk_norm(self, attn: str) -> Tensor:
        config = self._config
        q = self._norm(f"{attn}.q_norm", config.head_dim).expand(config.num_heads, -1)
        k = self._norm(f"{attn}.k_norm", config.head_dim).expand(config.num_kv_heads, -1)
        return torch.cat((q, k)).contiguous()


@contextmanager
def _workers() -> Iterator[ThreadPoolExecutor]:
    """As many threads as torch has, each of which computes alone. An error drops what has not begun."""
    threads = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(threads, "load", initializer=torch.set_num_threads, initargs=(1,)) as pool:
            try:
                yield pool
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    finally:
        torch.set_num_threads(threads)
