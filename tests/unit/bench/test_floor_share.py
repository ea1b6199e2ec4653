"""The share of products in steps is of every step of the load; what it times is its own affair."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from evenflow.bench import floor_share
from evenflow.bench.floor import ProductFloor
from evenflow.engine.config import Dtype, EngineConfig
from evenflow.kernels.native import load_kernels
from evenflow.workload.peer_format import PeerRequest
from tiny_models import tiny_model


@pytest.mark.skipif(load_kernels().table is None, reason="only products of the native kernels are timed")
def test_products_are_timed_at_the_sizes_of_every_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_model("llama").save_pretrained(tmp_path)
    sizes: list[tuple[int, int]] = []

    class Floor(ProductFloor):
        def seconds(self, steps: Sequence[tuple[int, int]]) -> float:
            sizes.extend(steps)
            return super().seconds(steps)

    monkeypatch.setattr(floor_share, "warm_up", lambda *_: None)
    monkeypatch.setattr(floor_share, "ProductFloor", Floor)
    config = EngineConfig(model=str(tmp_path), dtype=Dtype.BF16, threads=1, block_size=16, kv_memory="4MiB")
    load = [PeerRequest(n, "", tuple(range(n, n + 20)), 12) for n in range(6)]
    found = floor_share.measure(config, load, rounds=2)
    assert found.rounds == 2
    assert found.steps * 2 == len(sizes)
    assert sum(tokens for tokens, _ in sizes) == 2 * 6 * (20 + 11), "the last token of each is not fed"
    assert sum(sampled for _, sampled in sizes) == 2 * 6 * 12
    assert 0.0 < found.lowest_share <= found.share <= found.highest_share
