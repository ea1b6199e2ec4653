"""What the figures were measured on. Linux: read from /proc."""

from dataclasses import dataclass
from pathlib import Path

_TELLING = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16", "asimddp", "sve", "i8mm", "bf16")


@dataclass(frozen=True, slots=True)
class Machine:
    """`instructions` are those of the processor's that matrix products are made of."""

    processor: str
    instructions: tuple[str, ...]
    memory_bytes: int


def this_machine() -> Machine:
    return describe(Path("/proc/cpuinfo").read_text(), Path("/proc/meminfo").read_text())


def describe(cpuinfo: str, meminfo: str) -> Machine:
    """From the text of the two files."""
    cpu = _fields(cpuinfo)
    flags = cpu.get("flags", cpu.get("Features", "")).split()
    return Machine(
        processor=cpu.get("model name", "unknown processor"),
        instructions=tuple(name for name in _TELLING if name in flags),
        memory_bytes=int(_fields(meminfo)["MemTotal"].split()[0]) * 1024,
    )


def _fields(text: str) -> dict[str, str]:
    """`name : value` lines; of a name that comes again (once per core), the first."""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon:
            fields.setdefault(name.strip(), value.strip())
    return fields
