"""KV memory is touched before it is needed, by a thread that runs when nothing else wants the processor.

The pool is not taken from the operating system until it is written to, so a small load takes little. But what is taken
is zeroed, and numpy asks for huge pages: whichever step first reaches the next 2 MiB of every layer waits for 60 MB of
zeroes (30 layers; 15 to 70 ms on a virtual machine, every 2700 tokens, until the pool has been used once). The core
hands out blocks in order, so what comes next is known: a thread asks the kernel for it ahead of time, layer by layer.

    blocks   0 .......... highest in use ....... touched ........ num_blocks
                          |------ HALF ------|                             less than that is left: touch MARGIN more

Linux can do that without changing a byte (MADV_POPULATE_WRITE, 5.14 and later); elsewhere nothing happens here.
"""

import ctypes
import os
import sys
import threading
from contextlib import suppress

from torch import Tensor

MARGIN_BYTES = 256 << 20
_POPULATE_WRITE = 23
_PIECE_BYTES = 2 << 20
_PAGE = 4096


class TouchAhead:
    """Of a pool [num_layers, num_blocks, ...] of bytes, contiguous."""

    def __init__(self, pool: Tensor) -> None:
        assert pool.is_contiguous()
        num_layers, self._num_blocks = pool.shape[:2]
        self._pool = pool
        self._layer_bytes = pool.stride(0) * pool.element_size()
        self._block_bytes = pool.stride(1) * pool.element_size()
        self._margin = max(1, MARGIN_BYTES // (num_layers * self._block_bytes))
        self._touched = 0 if sys.platform == "linux" else self._num_blocks
        self._thread: threading.Thread | None = None

    def reached(self, block: int) -> None:
        """This block is in use. Cheap, unless it is time to touch more."""
        if self._touched < self._num_blocks and block + self._margin // 2 >= self._touched:
            self._start(min(self._num_blocks, block + self._margin))

    def wait(self) -> None:
        """Until what was asked for is touched."""
        if self._thread is not None:
            self._thread.join()

    def _start(self, end: int) -> None:
        if self._thread is not None and self._thread.is_alive():
            return
        begin, self._touched = self._touched, max(end, self._touched)
        # It ends by itself and keeps the pool until then: there is nothing to close.
        self._thread = threading.Thread(target=self._touch, args=(begin, end), name="kv-touch-ahead", daemon=True)
        self._thread.start()

    def _touch(self, begin: int, end: int) -> None:
        with suppress(OSError, AttributeError):  # it then runs like any other thread
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        madvise = ctypes.CDLL(None).madvise
        madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        blocks = max(1, _PIECE_BYTES // self._block_bytes)
        base, num_layers = self._pool.data_ptr(), len(self._pool)
        for first in range(begin, end, blocks):
            last = min(first + blocks, end)
            for layer in range(num_layers):
                start = base + layer * self._layer_bytes + first * self._block_bytes
                stop = start + (last - first) * self._block_bytes
                aligned = start // _PAGE * _PAGE
                if madvise(aligned, stop - aligned, _POPULATE_WRITE):
                    self._touched = self._num_blocks  # an older kernel; or no memory, which a step will say
                    return
