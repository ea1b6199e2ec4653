"""The host pool as memory: where the blocks of swapped requests lie, and how they get there and back.

    KV memory, each of its tensors   [num_layers, num_blocks, ...]           a block is a slice of every layer
    host memory, one for each        [num_host_blocks, num_layers, ...]      a block lies in one piece

so that a copy between a device and pinned host memory is one transfer, which the device gathers or scatters. Copies are
enqueued and not waited for: they are in the order of the plan, and so is everything that reads or writes the blocks.
(On the CPU device a copy is done when it returns. A slice per block makes 18 GB/s on the machine of docs/benchmarks.md,
indexing all blocks at once 1.2 GB/s.)
"""

from collections.abc import Sequence

import torch

from evenflow.core.plan import BlockCopy


class HostMemory:
    """Not touched, and so not really taken, before it is used; pinned where the KV memory is not the CPU's."""

    def __init__(self, kv_tensors: Sequence[torch.Tensor], *, num_blocks: int) -> None:
        self._pairs = [(device, _host_of(device, num_blocks)) for device in kv_tensors]

    def copy_out(self, copies: Sequence[BlockCopy]) -> None:
        for device, host in self._pairs:
            for source, target in copies:
                host[target].copy_(device[:, source], non_blocking=True)

    def copy_in(self, copies: Sequence[BlockCopy]) -> None:
        for device, host in self._pairs:
            for source, target in copies:
                device[:, target].copy_(host[source], non_blocking=True)


def _host_of(device: torch.Tensor, num_blocks: int) -> torch.Tensor:
    num_layers, _, *rest = device.shape
    pinned = device.device.type != "cpu"
    return torch.empty((num_blocks, num_layers, *rest), dtype=device.dtype, pin_memory=pinned)
