"""What a measured cost belongs to: this processor, so many cores, this version of the engine."""

import os
import platform
from importlib.metadata import version

from evenflow.kernels.processor import processor


def this_machine() -> str:
    name, _ = processor()
    return f"{name or platform.machine()}, {len(os.sched_getaffinity(0))} cores"


def this_engine() -> str:
    return version("evenflow")
