"""What the processor has of what the kernels are written for, as the operating system tells it."""

from pathlib import Path

# Linux's names. The kernels' instruction sets are bundles of these (build.py has the compiler's names).
FLAGS = ("avx2", "fma", "avx512f", "avx512bw", "avx512_vnni", "avx512_bf16", "amx_tile", "amx_int8", "amx_bf16")


def processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> tuple[str, tuple[str, ...]]:
    """Its name, and which of FLAGS it has; an empty name where the system does not tell."""
    try:
        lines = [line.partition(":") for line in cpuinfo.read_text().splitlines()]
    except OSError:
        return "", ()
    fields = {key.strip(): value.strip() for key, _, value in reversed(lines)}  # the first core's, that is
    has = set(fields.get("flags", "").split())
    return fields.get("model name", ""), tuple(flag for flag in FLAGS if flag in has)
