"""Being woken on time, beside a server that uses every core.

By default Linux may wake a sleeper 50 us late to save power, and lets whoever runs finish its slice of some
milliseconds first. A thread may ask for exact timers, and for short slices of its own: it then gets no more of the
processor, but gets it when it is due. Neither needs a privilege. Elsewhere, and on older kernels, nothing is asked.
"""

import ctypes
import os
import platform
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_SLICE_NANOSECONDS = 100_000  # the shortest that the kernel gives
_PR_SET_TIMERSLACK = 29
_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274, "riscv64": 274}
# struct sched_attr, first version: size, policy, flags, nice, priority, runtime (the slice), deadline, period.
_SCHED_ATTR = struct.Struct("IIQiIQQQ")


@contextmanager
def punctual() -> Iterator[None]:
    """For this thread."""
    if sys.platform != "linux" or os.sched_getscheduler(0) != os.SCHED_OTHER:
        yield
        return
    _ask(slice_nanoseconds=_SLICE_NANOSECONDS, slack_nanoseconds=1)
    try:
        yield
    finally:
        _ask(slice_nanoseconds=0, slack_nanoseconds=0)  # the defaults


def _ask(*, slice_nanoseconds: int, slack_nanoseconds: int) -> None:
    """A kernel that does not know what is asked refuses it, and nothing has changed."""
    library = ctypes.CDLL(None)
    library.prctl(_PR_SET_TIMERSLACK, slack_nanoseconds, 0, 0, 0)
    number = _SCHED_SETATTR.get(platform.machine())
    if number is not None:
        nice = os.getpriority(os.PRIO_PROCESS, 0)
        attributes = _SCHED_ATTR.pack(_SCHED_ATTR.size, 0, 0, nice, 0, slice_nanoseconds, 0, 0)
        library.syscall(number, 0, ctypes.create_string_buffer(attributes, len(attributes)), 0)
