"""KV memory that is touched before a step needs it."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from evenflow.executors.torch import touch_ahead
from evenflow.executors.torch.kv_memory import _lazy_zeros
from evenflow.executors.torch.touch_ahead import TouchAhead

LAYERS, BLOCKS, BLOCK_BYTES = 2, 2048, 16384


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> torch.Tensor:
    """64 MiB, of which 16 are to be touched ahead."""
    monkeypatch.setattr(touch_ahead, "MARGIN_BYTES", 16 << 20)
    return _lazy_zeros(LAYERS * BLOCKS * BLOCK_BYTES).view(LAYERS, BLOCKS, BLOCK_BYTES)


def grown(act: Callable[[], None]) -> int:
    before = resident_bytes()
    act()
    return resident_bytes() - before


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can touch memory without changing it")
def test_memory_is_taken_ahead_of_the_highest_block_by_a_margin_and_not_all_at_once(pool: torch.Tensor) -> None:
    ahead = TouchAhead(pool)

    def reach(block: int) -> None:
        ahead.reached(block)
        ahead.wait()

    first = grown(lambda: reach(0))
    if first < 1 << 20:
        pytest.skip("this kernel cannot populate memory")
    assert first == pytest.approx(16 << 20, rel=0.5)
    assert grown(lambda: reach(1)) < 4 << 20, "there is enough ahead"
    assert grown(lambda: reach(1000)) > 8 << 20


def test_what_the_memory_holds_stays(pool: torch.Tensor) -> None:
    pool[:, ::7] = 5
    ahead = TouchAhead(pool)
    for block in range(0, BLOCKS, 100):
        ahead.reached(block)
        ahead.wait()
    assert int(pool[:, ::7].min()) == 5
    assert int(pool[:, 1::7].max()) == 0
