"""The sampler's body over the C++ kernels: one call for all rows of a step."""

from ctypes import byref

import numpy as np

from evenflow.executors.torch.logits import Logits
from evenflow.executors.torch.sampling_columns import SamplingColumns
from evenflow.executors.torch.vocab_blocks import Ids
from evenflow.kernels.abi import DTYPE_CODES, KernelTable, SampleArgs


class NativeSampling:
    def __init__(self, table: KernelTable, columns: SamplingColumns) -> None:
        self._table = table
        self._columns = columns  # the record below points into them, and to the tokens
        self._tokens = np.empty(len(columns.seed), dtype=np.int64)
        self._args = SampleArgs(
            temperature=columns.temperature.ctypes.data,
            top_k=columns.top_k.ctypes.data,
            top_p=columns.top_p.ctypes.data,
            min_p=columns.min_p.ctypes.data,
            seed=columns.seed.ctypes.data,
            tokens=self._tokens.ctypes.data,
        )

    def pick(self, logits: Logits, which: Ids | None, rows: Ids, places: Ids) -> Ids:
        values, maxima, args = logits.values, logits.maxima, self._args
        num_rows, stride = len(rows), values.stride()
        assert stride[1] == 1 and num_rows == len(places) == len(values if which is None else which)
        assert num_rows <= len(self._tokens) and rows.strides == places.strides == (8,)
        args.logits, args.stride = values.data_ptr(), stride[0]
        args.vocab, args.dtype = values.shape[1], DTYPE_CODES[values.dtype]
        args.maxima = None if maxima is None else maxima.data_ptr()
        args.logit_rows = None if which is None else which.ctypes.data
        args.rows, args.places, args.num_rows = rows.ctypes.data, places.ctypes.data, num_rows
        self._table.sample(byref(args))
        return self._tokens[:num_rows].copy()
