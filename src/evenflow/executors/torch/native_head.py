"""The last norm and the product with the vocabulary, over native kernels and into memory that stays.

64 rows of 49,152 floats are 12.6 MB: fresh from the operating system in every step they would cost as many page faults
as the arg-max costs time. The product notes the largest logit of each block of 256 while it has them in the caches.
"""

from ctypes import byref

import torch
from torch import Tensor

from evenflow.executors.torch.kernel_records import Rows, norm_of, product_of
from evenflow.executors.torch.logits import Logits
from evenflow.executors.torch.vocab_blocks import BLOCK
from evenflow.kernels.abi import KernelTable
from evenflow.models.linear import Int8Linear
from evenflow.models.llama import LlamaModel


class NativeHead:
    """`left` is room for the normed rows; no more rows than it has may come."""

    def __init__(self, model: LlamaModel, table: KernelTable, left: Rows) -> None:
        self._model = model
        self._left = left
        self._norm = table.rms_norm
        self._product = table.int8_gemm if isinstance(model.head, Int8Linear) else table.bf16_gemm
        self._reserve(1)

    def _reserve(self, num_rows: int) -> None:
        vocab_size = self._model.config.vocab_size
        self._values = torch.empty(num_rows, vocab_size, dtype=self._model.dtype)
        self._maxima = torch.empty(num_rows, -(-vocab_size // BLOCK))
        self._args = product_of(self._model.head, self._left, self._values)
        self._args.maxima = self._maxima.data_ptr()
        self._logits = Logits(self._values[:0], self._maxima[:0])
        self._hidden: Tensor | None = None  # what the records point to

    def logits(self, hidden: Tensor) -> Logits:
        """[R, hidden_size], of which the rows may lie anywhere; valid until the next call."""
        if hidden is not self._hidden:  # the same object is the same memory, and gives the same again
            self._point_to(hidden)
        self._norm(byref(self._norm_args))
        self._product(byref(self._args))
        return self._logits

    def _point_to(self, hidden: Tensor) -> None:
        num_rows = len(hidden)
        if num_rows > len(self._values):
            self._reserve(num_rows)
        self._norm_args = norm_of(hidden, self._model.norm, self._model.config.rms_norm_eps, self._left)
        self._norm_args.rows.num_rows = self._args.m = num_rows
        self._hidden = hidden
        if num_rows != len(self._logits):
            self._logits = Logits(self._values[:num_rows], self._maxima[:num_rows])
