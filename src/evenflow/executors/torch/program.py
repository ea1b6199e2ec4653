"""A fixed list of kernel calls over fixed buffers, run again and again for different numbers of rows.

The argument records are filled in once. What changes from step to step is how many rows there are, so a step is one
call of the library, which goes through the list by itself. csrc/program.h says what that is good for.
"""

from collections.abc import Callable
from ctypes import Array, Structure, addressof, byref, c_void_p, cast
from typing import Any, NamedTuple  # ctypes' function pointers and references have no better type

from evenflow.kernels.abi import CallArgs, KernelTable, ProgramArgs


class KernelCall(NamedTuple):
    """`kernel` is a name in the table; `counter` is the record (`args`, or one inside it) and its field that say how
    many rows there are."""

    kernel: str
    args: Structure
    counter: tuple[Structure, str] | None = None


class Program:
    """`add` calls in the order in which they are to run. What their records point to must live as long as this."""

    def __init__(self, table: KernelTable) -> None:
        self._table = table
        self._calls: list[KernelCall] = []
        self._linked: Array[CallArgs] | None = None
        self._args = ProgramArgs()

    def add(self, kernel: str, args: Structure, *, counter: tuple[Structure, str] | None = None) -> None:
        assert self._linked is None, "the program has run"
        self._calls.append(KernelCall(kernel, args, counter))

    def run(self, num_rows: int) -> None:
        if self._linked is None:
            self._linked = (CallArgs * len(self._calls))(*map(self._link, self._calls))
            self._args.calls, self._args.num_calls = addressof(self._linked), len(self._linked)
        self._args.num_rows = num_rows
        self._table.run(byref(self._args))

    def _link(self, call: KernelCall) -> CallArgs:
        linked = CallArgs(cast(getattr(self._table, call.kernel), c_void_p), addressof(call.args))
        if call.counter is not None:
            record, field = call.counter
            linked.num_rows = addressof(record) + getattr(type(record), field).offset
        return linked


class CallByCall(Program):
    """The same from Python, one by one, of a table whose functions need not be the library's: for measuring."""

    def run(self, num_rows: int) -> None:
        for kernel, args, counter in self._calls:
            if counter is not None:
                setattr(*counter, num_rows)
            call: Callable[[Any], None] = getattr(self._table, kernel)
            call(byref(args))
