"""csrc/abi.h for ctypes: the argument records and the table of functions, field by field. Meanings are told there."""

import ctypes
from ctypes import POINTER, Structure, c_char_p, c_float, c_int32, c_int64, c_void_p

import torch

ABI_VERSION = 5

DTYPE_CODES = {torch.float32: 0, torch.bfloat16: 1, torch.int8: 2}


class PoolArgs(Structure):
    _fields_ = (
        ("base", c_void_p),
        ("block_size", c_int32),
        ("num_kv_heads", c_int32),
        ("head_dim", c_int32),
        ("dtype", c_int32),
    )


class BatchArgs(Structure):
    _fields_ = (
        ("query_start", c_void_p),
        ("context_len", c_void_p),
        ("block_tables", c_void_p),
        ("slots", c_void_p),
        ("positions", c_void_p),
        ("num_seqs", c_int32),
        ("num_tokens", c_int32),
        ("max_blocks", c_int32),
    )


class KvWriteArgs(Structure):
    _fields_ = (
        ("pool", PoolArgs),
        ("key", c_void_p),
        ("value", c_void_p),
        ("batch", POINTER(BatchArgs)),
        ("key_stride", c_int64),
        ("value_stride", c_int64),
        ("dtype", c_int32),
    )


class AttentionArgs(Structure):
    _fields_ = (
        ("pool", PoolArgs),
        ("query", c_void_p),
        ("out", c_void_p),
        ("batch", POINTER(BatchArgs)),
        ("query_stride", c_int64),
        ("out_stride", c_int64),
        ("num_heads", c_int32),
        ("window", c_int32),
        ("scale", c_float),
        ("dtype", c_int32),
    )


class RotaryArgs(Structure):
    _fields_ = (
        ("pool", PoolArgs),
        ("qkv", c_void_p),
        ("batch", POINTER(BatchArgs)),
        ("cos", c_void_p),
        ("sin", c_void_p),
        ("qk_norm", c_void_p),
        ("stride", c_int64),
        ("num_heads", c_int32),
        ("by_token", c_int32),
        ("eps", c_float),
        ("dtype", c_int32),
    )


class RowsArgs(Structure):
    _fields_ = (
        ("input", c_void_p),
        ("out", c_void_p),
        ("quantised", c_void_p),
        ("scales", c_void_p),
        ("in_stride", c_int64),
        ("out_stride", c_int64),
        ("num_rows", c_int32),
        ("dim", c_int32),
        ("padded_dim", c_int32),
        ("dtype", c_int32),
    )


class NormArgs(Structure):
    _fields_ = (
        ("rows", RowsArgs),
        ("addend", c_void_p),
        ("weight", c_void_p),
        ("addend_stride", c_int64),
        ("eps", c_float),
        ("addend_dtype", c_int32),
    )


class EmbedArgs(Structure):
    _fields_ = (
        ("token_ids", c_void_p),
        ("table", c_void_p),
        ("out", c_void_p),
        ("table_stride", c_int64),
        ("out_stride", c_int64),
        ("num_rows", c_int32),
        ("dim", c_int32),
        ("vocab", c_int32),
        ("scale", c_float),
        ("table_dtype", c_int32),
        ("dtype", c_int32),
    )


class AddArgs(Structure):
    _fields_ = (
        ("to", c_void_p),
        ("addend", c_void_p),
        ("to_stride", c_int64),
        ("addend_stride", c_int64),
        ("num_rows", c_int32),
        ("dim", c_int32),
        ("dtype", c_int32),
        ("addend_dtype", c_int32),
    )


class GatedArgs(Structure):
    _fields_ = (("rows", RowsArgs), ("activation", c_int32))


class Int8GemmArgs(Structure):
    _fields_ = (
        ("a", c_void_p),
        ("a_scales", c_void_p),
        ("packed", c_void_p),
        ("w_scales", c_void_p),
        ("w_sums", c_void_p),
        ("bias", c_void_p),
        ("out", c_void_p),
        ("maxima", c_void_p),
        ("out_stride", c_int64),
        ("m", c_int32),
        ("n", c_int32),
        ("padded_k", c_int32),
        ("dtype", c_int32),
        ("gate", c_int32),
    )


class Bf16GemmArgs(Structure):
    _fields_ = (
        ("a", c_void_p),
        ("packed", c_void_p),
        ("bias", c_void_p),
        ("out", c_void_p),
        ("maxima", c_void_p),
        ("a_stride", c_int64),
        ("out_stride", c_int64),
        ("m", c_int32),
        ("n", c_int32),
        ("padded_k", c_int32),
        ("dtype", c_int32),
        ("gate", c_int32),
    )


class LayoutArgs(Structure):
    _fields_ = (
        ("rows", c_void_p),
        ("starts", c_void_p),
        ("lengths", c_void_p),
        ("samples", c_void_p),
        ("tables", c_void_p),
        ("num_prompt_tokens", c_void_p),
        ("table_stride", c_int64),
        ("query_start", c_void_p),
        ("context_len", c_void_p),
        ("block_tables", c_void_p),
        ("slots", c_void_p),
        ("positions", c_void_p),
        ("logit_rows", c_void_p),
        ("sampling_rows", c_void_p),
        ("places", c_void_p),
        ("num_seqs", c_int32),
        ("max_blocks", c_int32),
        ("block_size", c_int32),
        ("num_sampling", c_int32),
        ("highest_slot", c_int32),
    )


class SampleArgs(Structure):
    _fields_ = (
        ("logits", c_void_p),
        ("maxima", c_void_p),
        ("logit_rows", c_void_p),
        ("rows", c_void_p),
        ("places", c_void_p),
        ("temperature", c_void_p),
        ("top_k", c_void_p),
        ("top_p", c_void_p),
        ("min_p", c_void_p),
        ("seed", c_void_p),
        ("tokens", c_void_p),
        ("stride", c_int64),
        ("num_rows", c_int32),
        ("vocab", c_int32),
        ("dtype", c_int32),
    )


class LogprobArgs(Structure):
    _fields_ = (
        ("logits", c_void_p),
        ("logit_rows", c_void_p),
        ("token_ids", c_void_p),
        ("num_top", c_void_p),
        ("logprobs", c_void_p),
        ("ranks", c_void_p),
        ("top_ids", c_void_p),
        ("top_logprobs", c_void_p),
        ("stride", c_int64),
        ("num_rows", c_int32),
        ("most_top", c_int32),
        ("vocab", c_int32),
        ("dtype", c_int32),
    )


class CallArgs(Structure):
    _fields_ = (("kernel", c_void_p), ("args", c_void_p), ("num_rows", c_void_p))


class ProgramArgs(Structure):
    _fields_ = (("calls", c_void_p), ("num_calls", c_int32), ("num_rows", c_int32))


class KernelTable(Structure):
    """Functions of one instruction set. They release the GIL while they run."""

    _fields_ = (
        ("isa", c_char_p),
        ("kv_write", ctypes.CFUNCTYPE(None, POINTER(KvWriteArgs))),
        ("attention", ctypes.CFUNCTYPE(None, POINTER(AttentionArgs))),
        ("rotary", ctypes.CFUNCTYPE(None, POINTER(RotaryArgs))),
        ("quantise", ctypes.CFUNCTYPE(None, POINTER(RowsArgs))),
        ("rms_norm", ctypes.CFUNCTYPE(None, POINTER(NormArgs))),
        ("gated", ctypes.CFUNCTYPE(None, POINTER(GatedArgs))),
        ("int8_gemm", ctypes.CFUNCTYPE(None, POINTER(Int8GemmArgs))),
        ("bf16_gemm", ctypes.CFUNCTYPE(None, POINTER(Bf16GemmArgs))),
        ("sample", ctypes.CFUNCTYPE(None, POINTER(SampleArgs))),
        ("logprobs", ctypes.CFUNCTYPE(None, POINTER(LogprobArgs))),
        ("run", ctypes.CFUNCTYPE(None, POINTER(ProgramArgs))),
        ("lay_out", ctypes.CFUNCTYPE(None, POINTER(LayoutArgs))),
        ("embed", ctypes.CFUNCTYPE(None, POINTER(EmbedArgs))),
        ("add", ctypes.CFUNCTYPE(None, POINTER(AddArgs))),
    )
