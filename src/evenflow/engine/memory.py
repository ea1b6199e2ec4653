"""Memory: what a process has, and what this one may still take within the system's and its control group's limits."""

import os
from pathlib import Path

_CGROUP_V2 = Path("/sys/fs/cgroup")


def available_memory(meminfo: Path = Path("/proc/meminfo"), cgroup: Path = _CGROUP_V2) -> int:
    """Bytes. On a system without /proc or cgroup files, only what can be read counts; 4 GiB if nothing can."""
    limits = [limit for limit in (_system_available(meminfo), _cgroup_available(cgroup)) if limit is not None]
    return min(limits, default=4 * 1024**3)


def resident_memory(pid: int | None = None, proc: Path = Path("/proc")) -> int | None:
    """Bytes of a process (this one if not given) that are in memory now; None where the system does not tell."""
    try:
        fields = (proc / ("self" if pid is None else str(pid)) / "statm").read_text().split()
        return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def _system_available(meminfo: Path) -> int | None:
    try:
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None


def _cgroup_available(cgroup: Path) -> int | None:
    try:
        limit = int((cgroup / "memory.max").read_text())
        used = int((cgroup / "memory.current").read_text())
    except (OSError, ValueError):  # no such file, or "max"
        return None
    return max(0, limit - used)
