"""The CPU kernels: C++ where a library could be built, plain torch where not, with the same results.

`describe()` says what was chosen and why. Nothing here imports torch before it is asked to, so that the build hook and
`evenflow env` work without it.
"""

import importlib


def describe() -> str:
    """One line for people, e.g. `native, avx512bf16 (best that this processor runs)`."""
    try:
        native = importlib.import_module("evenflow.kernels.native")
    except ModuleNotFoundError:
        return "none: torch is not installed"
    kernels = native.load_kernels()
    if kernels.table is None:
        return f"torch fallback: {kernels.reason}"
    return f"native, {kernels.isa} ({kernels.reason})"
