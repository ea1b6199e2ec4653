"""What is said of a processor."""

from evenflow.bench.peers.machine import describe, this_machine

CPUINFO = """\
processor\t: 0
vendor_id\t: AuthenticAMD
model name\t: AMD EPYC 9R14
flags\t\t: fpu vme avx2 avx512f avx512_bf16 avx512_vnni
processor\t: 1
model name\t: another
"""
MEMINFO = "MemTotal:       24682768 kB\nMemFree:         1000 kB\n"


def test_the_first_processor_is_described() -> None:
    machine = describe(CPUINFO, MEMINFO)
    assert machine.processor == "AMD EPYC 9R14"
    assert machine.instructions == ("avx2", "avx512f", "avx512_vnni", "avx512_bf16")
    assert machine.memory_bytes == 24682768 * 1024


def test_a_processor_without_a_name_is_unknown() -> None:
    machine = describe("processor : 0\nFeatures : fp asimddp i8mm bf16\n", MEMINFO)
    assert machine.processor == "unknown processor"
    assert machine.instructions == ("asimddp", "i8mm", "bf16")


def test_this_machine_has_memory() -> None:
    assert this_machine().memory_bytes > 2**20
