"""The way to the device, beside torch's: ``python -m benchmarks.device``. It runs on the fake device of the tests.

The device has one copy engine of 4 GB/s and takes 10 ms for a step. Both loaders have two workers that are fast enough. torch's
loader pins in its thread, and the loop copies with ``.to(device, non_blocking=True)``; stoker's has ``device=``. Nobody
synchronises before the end. The CPU time of the fake's own threads is left out.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import torch.utils.data

import stoker
from stoker._runtime.device.host_registers import HOST_REGISTERS, HostRegister
from tests import fake_device

STEP_MS = 10.0
BYTES_PER_S = 4e9
ROUNDS = 3
STEPS = 90
WARM_UP = 45
"""Batches that are not measured: until then every slot was written, registered and copied from."""
BATCHES = STEPS + WARM_UP + 15
"""Copies begin ahead, up to the last batch that is measured."""


class Images(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    """Samples that cost nothing to make."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.image = torch.ones(3, 224, 224).to(dtype)

    def __len__(self) -> int:
        return 64 * BATCHES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.image, index


class Fields(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Twenty small tensors."""

    def __len__(self) -> int:
        return 64 * BATCHES

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {f"field{number}": torch.full((16,), float(index)) for number in range(20)}


class Figures(NamedTuple):
    """Of one run, per batch: time of a step, CPU time of ``next()`` (median and mean) and of the whole process, copies."""

    step_ms: float
    next_us: float
    mean_us: float
    parent_ms: float
    copies: float


def moved(batch: Any, device: str) -> Any:
    """As a training loop does it."""
    if isinstance(batch, dict):
        return {key: each.to(device, non_blocking=True) for key, each in batch.items()}
    return [each.to(device, non_blocking=True) for each in batch]


def run(fake: Any, loader: Any, move: Callable[[Any], Any]) -> Figures:
    """Iterate over one epoch. The first batches are not measured."""
    batches: Iterator[Any] = iter(loader)
    for _ in range(WARM_UP):
        batch = move(next(batches))
        fake.occupy(STEP_MS)
    torch.accelerator.synchronize()
    before, cpu_ns, began_ns = fake.counters(), time.process_time_ns(), time.monotonic_ns()
    next_ns = []
    for _ in range(STEPS):
        asked_ns = time.thread_time_ns()
        batch = next(batches)
        next_ns.append(time.thread_time_ns() - asked_ns)
        batch = move(batch)
        fake.occupy(STEP_MS)
    del batch
    torch.accelerator.synchronize()
    step_ms = (time.monotonic_ns() - began_ns) / STEPS / 1e6
    after = fake.counters()
    own_ns = time.process_time_ns() - cpu_ns - (after.engine_cpu_ns - before.engine_cpu_ns)
    copies = (after.copies_to_device - before.copies_to_device) / STEPS
    next_us, mean_us = statistics.median(next_ns) / 1e3, statistics.mean(next_ns) / 1e3
    return Figures(step_ms, next_us, mean_us, own_ns / STEPS / 1e6, copies)


def compare(fake: Any, name: str, dataset: Any, bytes_of_batch: float) -> None:
    """Both loaders in turn, and the median of each."""
    kinds: dict[str, list[Figures]] = {"torch": [], "stoker": []}
    options: dict[str, Any] = {"batch_size": 64, "num_workers": 2}
    for _ in range(ROUNDS):
        theirs: Any = torch.utils.data.DataLoader(dataset, pin_memory=True, **options)
        kinds["torch"].append(run(fake, theirs, lambda batch: moved(batch, fake_device.NAME)))
        del theirs
        gc.collect()
        with stoker.DataLoader(dataset, device=fake_device.NAME, **options) as ours:
            kinds["stoker"].append(run(fake, ours, lambda batch: batch))
            way = ours.stats()["device"]["memory"]
        gc.collect()
    limit_ms = max(STEP_MS, bytes_of_batch / BYTES_PER_S * 1e3)
    print(f"{name}: {bytes_of_batch / 1e6:.1f} MB a batch, the step takes {STEP_MS:g} ms, the copy "
          f"{bytes_of_batch / BYTES_PER_S * 1e3:.2f} ms ({way} memory)")  # fmt: skip
    for kind, found in kinds.items():
        step_ms, next_us, mean_us, parent_ms, copies = (
            statistics.median(each) for each in zip(*found, strict=True)
        )
        print(
            f"  {kind:7} step {step_ms:6.2f} ms = {step_ms / limit_ms:4.2f} × max(step, copy)   next() {next_us:4.0f} µs CPU "
            f"(mean {mean_us:4.0f})   "
            f"parent {parent_ms:6.2f} ms CPU a batch   {copies:g} copies a batch"
        )
    parent = [statistics.median(each.parent_ms for each in found) for found in kinds.values()]
    print(f"  CPU of the parent: {parent[1] / parent[0]:.2f} × torch's")


def main() -> None:
    """Print the figures."""
    fake = fake_device.load()
    HOST_REGISTERS[fake_device.NAME] = HostRegister(fake.register_host, fake.unregister_host)
    fake.timed(bytes_per_s=BYTES_PER_S, move_bytes=False)
    torch.set_num_threads(1)
    pixels = 64 * 3 * 224 * 224
    compare(fake, "uint8 images", Images(torch.uint8), pixels)
    compare(fake, "float32 images", Images(torch.float32), 4 * pixels)
    compare(fake, "dict of 20 tensors", Fields(), 64 * 20 * 16 * 4)


if __name__ == "__main__":
    main()
