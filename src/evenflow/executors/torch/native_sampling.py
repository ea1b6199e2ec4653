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
        self._logits: Logits | None = None  # what the record points to, with the next two
        self._rows: Ids | None = None
        self._places: Ids | None = None
        self._args = SampleArgs(
            temperature=columns.temperature.ctypes.data,
            top_k=columns.top_k.ctypes.data,
            top_p=columns.top_p.ctypes.data,
            min_p=columns.min_p.ctypes.data,
            seed=columns.seed.ctypes.data,
            tokens=self._tokens.ctypes.data,
        )

    def pick(self, logits: Logits, which: Ids | None, rows: Ids, places: Ids) -> Ids:
        # The same objects as before are the same memory, which the record points to already.
        if not (logits is self._logits and rows is self._rows and places is self._places and which is None):
            self._point_to(logits, which, rows, places)
        self._table.sample(byref(self._args))
        return self._tokens[: self._args.num_rows].copy()

    def _point_to(self, logits: Logits, which: Ids | None, rows: Ids, places: Ids) -> None:
        values, maxima, args = logits.values, logits.maxima, self._args
        num_rows, stride = len(rows), values.stride()
        assert stride[1] == 1 and num_rows == len(places) == len(values if which is None else which)
        assert num_rows <= len(self._tokens) and rows.strides == places.strides == (8,)
        args.logits, args.stride = values.data_ptr(), stride[0]
        args.vocab, args.dtype = values.shape[1], DTYPE_CODES[values.dtype]
        args.maxima = None if maxima is None else maxima.data_ptr()
        args.logit_rows = None if which is None else which.ctypes.data
        args.rows, args.places, args.num_rows = rows.ctypes.data, places.ctypes.data, num_rows
        # Kept, so that what the record points to lives. With `which` it is not what all of `logits` would be.
        self._logits, self._rows, self._places = (logits, rows, places) if which is None else (None, rows, places)
