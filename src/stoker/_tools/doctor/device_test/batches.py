"""Brings thousands of batches to the device while batches are dropped, epochs left and workers killed. The device checks each.

A batch carries the checksum that its worker computed. The device computes the same from the bytes that arrived, and counts the
batches where the two differ. The host reads that count now and then, so that copies and checks overlap as in training.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from torch.utils.data import Dataset

from stoker._runtime.device.host_registers import HOST_REGISTERS, HostRegister
from stoker.loader import DataLoader

_LARGEST_BYTES = 1 << 20
_PERIOD = 251
_LENGTH = 400
"""Batches of an epoch."""
_READ_EVERY = 64


class ChecksummedBatches(Dataset[dict[str, torch.Tensor]]):
    """Batches of random bytes and random size, with a checksum in which every place counts."""

    def __len__(self) -> int:
        return _LENGTH

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        generator = torch.Generator().manual_seed(index)
        size = int(
            torch.randint(
                1, _LARGEST_BYTES if index % 4 == 0 else _LARGEST_BYTES // 64, (1,), generator=generator
            )
        )
        data = torch.randint(0, 256, (size,), dtype=torch.uint8, generator=generator)
        return {"data": data, "index": torch.tensor(index), "sum": checksum(data)}


class BatchResult(NamedTuple):
    """What became of the batches."""

    batches: int
    wrong: int
    epochs: int
    left: int
    """Epochs that were left before their end."""
    kills: int
    facts: dict[str, Any]
    """``loader.stats()["device"]`` at the end."""
    registrations: int
    leaked: int
    """Registrations that were left after the loader was closed."""
    failure: str
    """The error that ended the test early; empty if none did."""


def checksum(data: torch.Tensor) -> torch.Tensor:
    """A number that depends on every byte and its place. On the device of ``data``."""
    weights = torch.arange(data.numel(), device=data.device) % _PERIOD + 1
    return (data.to(torch.int64) * weights).sum()


def bring(device: torch.device, batches: int, progress: Callable[[int], None], seed: int = 0) -> BatchResult:
    """Bring so many batches to the device. ``progress`` is told how many have come."""
    chance = random.Random(seed)
    seen = epochs = left = kills = wrong = 0
    failure, facts = "", {"copies": 0, "copied_bytes": 0, "memory": "no"}
    kept: list[dict[str, torch.Tensor]] = []
    off = torch.zeros((), dtype=torch.int64, device=device)
    options: dict[str, Any] = {
        "batch_size": None,
        "num_workers": 2,
        "restarts": 1000,
        "name": "device test",
        "record": False,
    }
    counted = _count_registrations(device)
    loader: DataLoader[dict[str, torch.Tensor]] = DataLoader(
        ChecksummedBatches(), device=device, device_prefetch=2, persistent_workers=True, **options
    )
    try:
        while seen < batches:
            epochs += 1
            iterator = iter(loader)
            for batch in iterator:
                seen += 1
                kept.append(batch)
                while len(kept) > chance.randrange(4):
                    each = kept.pop(chance.randrange(len(kept)))
                    off += (checksum(each["data"]) != each["sum"]).to(torch.int64)
                    del each
                if seen % _READ_EVERY == 0:
                    wrong = int(off.cpu())
                    progress(seen)
                if chance.random() < 0.002:
                    kills += _kill(iterator, chance)
                if seen >= batches or chance.random() < 0.004:
                    left += seen < batches
                    break
            del batch, iterator
        for each in kept:
            off += (checksum(each["data"]) != each["sum"]).to(torch.int64)
        kept.clear()
        wrong = int(off.cpu())
    except RuntimeError as error:  # the driver refused something, or the device is lost
        failure = str(error).partition("\n")[0]
    finally:
        facts = loader.stats()["device"] or facts
        loader.close()
        counted.restore()
    return BatchResult(
        seen, wrong, epochs, left, kills, facts, counted.made, counted.made - counted.undone, failure
    )


class RegistrationCount:
    """Counts what is registered and unregistered, until ``restore``."""

    def __init__(self, kind: str, driver: HostRegister | None) -> None:
        self.made = self.undone = 0
        self._kind = kind
        self._driver = driver
        if driver is not None:
            HOST_REGISTERS[kind] = HostRegister(self._register, self._unregister)

    def restore(self) -> None:
        """Count no more."""
        if self._driver is not None:
            HOST_REGISTERS[self._kind] = self._driver

    def _register(self, address: int, nbytes: int) -> int:
        assert self._driver is not None
        code = self._driver.register(address, nbytes)
        self.made += not code
        return code

    def _unregister(self, address: int) -> int:
        assert self._driver is not None
        code = self._driver.unregister(address)
        self.undone += not code
        return code


def _count_registrations(device: torch.device) -> RegistrationCount:
    return RegistrationCount(device.type, HOST_REGISTERS.get(device.type))


def _kill(iterator: Any, chance: random.Random) -> int:
    """Kill one of the loader's workers, as the kernel would for lack of memory."""
    workers = [worker for worker in iterator._workers if worker.pid]
    if not workers:
        return 0
    with suppress(ProcessLookupError):
        os.kill(chance.choice(workers).pid, signal.SIGKILL)
        return 1
    return 0
