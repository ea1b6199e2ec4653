"""A fixed list of kernel calls over fixed buffers, run again and again for different numbers of rows.

The argument records are filled in once. What changes from step to step is how many rows there are, and a few pointers,
so a step costs Python one assignment and one call per record, instead of filling in some 300 records anew.
"""

import ctypes
from collections.abc import Callable
from typing import Any  # ctypes' function pointers and references have no better type


class Program:
    """`add` calls in the order in which they are to run."""

    __slots__ = ("_calls", "_counters")

    def __init__(self) -> None:
        self._calls: list[tuple[Callable[[Any], None], Any]] = []
        self._counters: list[tuple[ctypes.Structure, str]] = []

    def add(
        self,
        kernel: Callable[[Any], None],
        args: ctypes.Structure,
        *,
        counter: tuple[ctypes.Structure, str] | None = None,
    ) -> None:
        """`counter` is the record (`args`, or one inside it) and its field that say how many rows there are."""
        self._calls.append((kernel, ctypes.byref(args)))
        if counter is not None:
            self._counters.append(counter)

    def run(self, num_rows: int) -> None:
        for record, field in self._counters:
            setattr(record, field, num_rows)
        for kernel, args in self._calls:
            kernel(args)
