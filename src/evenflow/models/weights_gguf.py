"""Weights of a GGUF file under Hugging Face names, dequantised some rows at a time.

In llama-type files the rows of q and k are interleaved so that rotated pairs are neighbours:

    Hugging Face   a0 a1 .. b0 b1 ..   (pair i is a_i, b_i)      GGUF   a0 b0 a1 b1 ..

so reading them splits each head's rows back into halves.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from evenflow.core.errors import ModelError
from evenflow.models.config_gguf import gguf_architecture
from evenflow.models.gguf_file import SUPPORTED_KINDS, GGUFFile, GGUFTensor
from evenflow.models.weights import same_shape

_TOP: Mapping[str, str] = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_LAYER: Mapping[str, str] = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_PLAIN_NORMS: Mapping[str, str] = {"post_attention_layernorm": "ffn_norm"}
# Where a norm also follows attention and MLP, Hugging Face's post_attention_layernorm is that one.
_POST_NORMS: Mapping[str, str] = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_CHUNK_ELEMENTS = 1 << 18  # 1 MB of float32: the passes of dequantising stay in a core's own cache


class GGUFWeights:
    def __init__(self, file: GGUFFile, *, head_dim: int) -> None:
        architecture = gguf_architecture(file)
        self._file = file
        self._layer_names = {**_LAYER, **(_POST_NORMS if architecture.post_norms else _PLAIN_NORMS)}
        self._interleaved = ("attn_q", "attn_k") if architecture.gguf_interleaves_rope else ()
        self._head_dim = head_dim

    def require(self, name: str, shape: Sequence[int]) -> None:
        tensor = self._file.tensor(self._translate(name))
        same_shape(self._file.path, tensor.name, tensor.shape, shape)
        if tensor.kind not in SUPPORTED_KINDS:
            raise ModelError(
                f"{self._file.path}: tensor '{tensor.name}' is {tensor.kind.name}, which is not supported."
            )

    def read_into(self, name: str, out: Tensor) -> None:
        gguf_name = self._translate(name)
        tensor = self._file.tensor(gguf_name)
        if gguf_name.split(".")[-2] in self._interleaved:
            whole = torch.empty(out.shape, dtype=torch.float32)
            self._copy(tensor, whole)
            pairs = whole.view(-1, self._head_dim // 2, 2, *whole.shape[1:])
            out.copy_(pairs.transpose(1, 2).reshape(out.shape))
        else:
            self._copy(tensor, out)

    def _copy(self, tensor: GGUFTensor, out: Tensor) -> None:
        rows = out if out.dim() > 1 else out.unsqueeze(0)
        step = max(1, _CHUNK_ELEMENTS // tensor.shape[-1])
        for start in range(0, tensor.num_rows, step):
            stop = min(start + step, tensor.num_rows)
            rows[start:stop].copy_(torch.from_numpy(self._file.rows(tensor, start, stop)))

    def _translate(self, name: str) -> str:
        if name in _TOP:
            return _TOP[name]
        _, _, layer, rest = name.split(".", 3)
        part, _, kind = rest.rpartition(".")
        return f"blk.{layer}.{self._layer_names[part]}.{kind}"
