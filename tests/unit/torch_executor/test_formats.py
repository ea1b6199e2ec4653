"""What `auto` means for each kind of machine, and that nothing lossy is done unasked."""

import pytest
import torch

from evenflow.executors.torch.formats import Choice, choose
from evenflow.kernels.abi import KernelTable
from evenflow.kernels.native import Kernels

NONE = Kernels(None, None, "none here")


def kernels(isa: str) -> Kernels:
    return Kernels(KernelTable(), isa, "for a test")


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        (kernels("amx"), "int8 (auto: the processor multiplies int8 fastest, by AMX)"),
        (kernels("avx512bf16"), "int8 (auto: the processor multiplies int8 fastest, by AVX-512 VNNI)"),
        (kernels("avx512"), "int8 (auto: the processor multiplies int8 fastest, by AVX-512 VNNI)"),
        (kernels("avx2"), "none (auto: avx2 has no instructions for int8 products)"),
        (kernels("portable"), "none (auto: portable has no instructions for int8 products)"),
        (NONE, "none (auto: int8 products need the native kernels)"),
    ],
    ids=lambda value: value.isa if isinstance(value, Kernels) else "",
)
def test_int8_is_taken_automatically_where_the_processor_is_made_for_it(machine: Kernels, expected: str) -> None:
    assert str(choose("bf16", "auto", "auto", machine).quantize) == expected


def test_nothing_is_lost_unasked_and_what_could_be_had_is_said() -> None:
    chosen = choose("bf16", "none", "auto", kernels("amx"))
    assert chosen.quantize.value == "none"
    assert "auto would take int8" in chosen.quantize.why
    assert chosen.kv_dtype == Choice("bf16", "auto: that of the weights")
    assert str(choose("bf16", "none", "auto", NONE).quantize) == "none (as asked)"


@pytest.mark.parametrize("name", ["int8", "none"])
def test_what_is_asked_for_is_done_on_any_machine(name: str) -> None:
    chosen = choose("fp32", name, "int8", NONE)
    assert (chosen.dtype.value, chosen.quantize.value, chosen.kv_dtype.value) == ("fp32", name, "int8")


@pytest.mark.parametrize(("multiplies_bf16", "expected"), [(True, "bf16"), (False, "fp32")])
def test_the_cache_has_the_numbers_of_the_weights_which_are_bf16_where_it_is_multiplied(
    monkeypatch: pytest.MonkeyPatch, multiplies_bf16: bool, expected: str
) -> None:
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: multiplies_bf16)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: multiplies_bf16)
    chosen = choose("auto", "none", "auto", NONE)
    assert (chosen.dtype.value, chosen.kv_dtype.value) == (expected, expected)
