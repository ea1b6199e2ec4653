"""Every running request has a row; what a step needs of it lies in columns, ready for vectorised reading.

    request id --> row number --> block_tables[row], num_prompt_tokens[row], and the sampler's columns

A row is taken when a request enters and given back when it leaves. The plan carries each request's whole block table in
every step, as the same tuple while it has not changed; only a new tuple is copied into the row.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from evenflow.core.block_pool import BlockId
from evenflow.core.plan import Entry
from evenflow.core.request import RequestId

Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]


class RequestRows:
    def __init__(self, *, max_num_seqs: int, max_blocks_per_seq: int) -> None:
        self.block_tables: Int32s = np.zeros((max_num_seqs, max_blocks_per_seq), dtype=np.int32)
        self.num_prompt_tokens: Int64s = np.zeros(max_num_seqs, dtype=np.int64)
        self._row_of: dict[RequestId, int] = {}
        self._free = list(range(max_num_seqs - 1, -1, -1))
        self._tables: list[tuple[BlockId, ...]] = [()] * max_num_seqs
        self._asked: tuple[Sequence[RequestId], list[int]] = (), []

    def enter(self, entry: Entry) -> int:
        """The row of a request that starts, or starts again, to run."""
        request = entry.request
        row = self._row_of.get(request.id)
        if row is None:
            row = self._row_of[request.id] = self._free.pop()
            self._asked = (), []
        self._tables[row] = ()
        self.num_prompt_tokens[row] = len(request.prompt_token_ids)
        return row

    def leave(self, request_id: RequestId) -> int | None:
        """The row it had; None if it has not entered."""
        row = self._row_of.pop(request_id, None)
        if row is not None:
            self._free.append(row)
            self._asked = (), []
        return row

    def numbers(self, request_ids: Sequence[RequestId]) -> list[int]:
        """The same list as the last time, if nothing changed."""
        asked, numbers = self._asked
        if request_ids != asked:
            numbers = list(map(self._row_of.__getitem__, request_ids))
            self._asked = request_ids, numbers
        return numbers

    def refresh_tables(self, rows: Sequence[int], tables: Sequence[tuple[BlockId, ...]]) -> int:
        """Copy the tables that changed; the length of the longest."""
        known = self._tables
        for row, table in zip(rows, tables, strict=True):
            if known[row] is not table:
                known[row] = table
                self.block_tables[row, : len(table)] = table
        return max(map(len, tables))
