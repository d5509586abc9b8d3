"""Registers memory with the driver, and measures bandwidth and overlap. Everything here runs in the process that has the device."""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable
from contextlib import suppress
from statistics import median
from typing import NamedTuple

import torch

from stoker._runtime.device.accelerator import on_stream
from stoker._runtime.device.host_registers import HOST_REGISTERS

BLOCK_BYTES = 64 << 20
_TIMES = 5
_MATRIX = 1024


class Registration(NamedTuple):
    """Whether memory can be registered: ``error`` is "" if it can."""

    error: str
    register_s: float = 0.0


class Bandwidth(NamedTuple):
    """Bytes per second to the device, by the kind of host memory. None: there is no such memory."""

    pageable: float
    pinned: float | None
    registered: float | None


class Overlap(NamedTuple):
    """Seconds of a copy, of computing, and of both at once on two streams."""

    copy_s: float
    compute_s: float
    both_s: float

    @property
    def hidden(self) -> float:
        """The part of the shorter one that the other hides, from 0 to 1."""
        shorter = min(self.copy_s, self.compute_s)
        saved_s = self.copy_s + self.compute_s - self.both_s
        return max(0.0, min(1.0, saved_s / shorter)) if shorter else 0.0


class SharedBlock:
    """Shared memory of our own, as a slot is, registered with the driver if that works. ``close`` undoes it."""

    def __init__(self, device: torch.device, nbytes: int) -> None:
        self._map = mmap.mmap(-1, nbytes)
        self.tensor = torch.frombuffer(self._map, dtype=torch.uint8)
        self.tensor.fill_(1)  # its pages exist before they are registered
        self._register = HOST_REGISTERS.get(device.type)
        self.registration = self._try(nbytes)

    def _try(self, nbytes: int) -> Registration:
        if self._register is None:
            return Registration("this type of device has no function for it")
        began_s = time.perf_counter()
        try:
            code = self._register.register(self.tensor.data_ptr(), nbytes)
        except Exception as error:
            return Registration(f"{type(error).__name__}: {error}")
        took_s = time.perf_counter() - began_s
        return Registration(f"the driver's error {code}") if code else Registration("", took_s)

    def close(self) -> None:
        """Unregister the memory and give it back."""
        if not self.registration.error and self._register is not None:
            self._register.unregister(self.tensor.data_ptr())
        del self.tensor


def bandwidth(device: torch.device, block: SharedBlock) -> Bandwidth:
    """Copy a block from each kind of memory."""
    target = torch.empty(BLOCK_BYTES, dtype=torch.uint8, device=device)
    pageable = torch.ones(BLOCK_BYTES, dtype=torch.uint8)
    try:
        pinned: torch.Tensor | None = pageable.pin_memory()
    except RuntimeError:
        pinned = None

    def speed(source: torch.Tensor) -> float:
        return BLOCK_BYTES / _seconds(lambda: target.copy_(source, non_blocking=True))

    return Bandwidth(
        speed(pageable),
        None if pinned is None else speed(pinned),
        None if block.registration.error else speed(block.tensor),
    )


def overlap(device: torch.device, block: SharedBlock) -> Overlap:
    """Copy a block on a side stream while the current stream multiplies matrices for about as long."""
    source = block.tensor
    if block.registration.error:
        with suppress(RuntimeError):  # from pageable memory, then: the result says what that costs
            source = source.pin_memory()
    target = torch.empty(BLOCK_BYTES, dtype=torch.uint8, device=device)
    matrix = torch.ones(_MATRIX, _MATRIX, device=device)
    result = torch.empty_like(matrix)
    stream = torch.Stream(device)

    def copy() -> None:
        with on_stream(stream):
            target.copy_(source, non_blocking=True)

    def compute(times: int) -> None:
        for _ in range(times):
            torch.mm(matrix, matrix, out=result)

    copy_s = _seconds(copy)
    once_s = _seconds(lambda: compute(1))
    times = max(1, round(copy_s / once_s))

    def both() -> None:
        copy()
        compute(times)

    return Overlap(copy_s, _seconds(lambda: compute(times)), _seconds(both))


def _seconds(action: Callable[[], object]) -> float:
    """The median of a few, each until the device is done; the first is left out."""
    took_s = []
    for _ in range(_TIMES + 1):
        torch.accelerator.synchronize()
        began_s = time.perf_counter()
        action()
        torch.accelerator.synchronize()
        took_s.append(time.perf_counter() - began_s)
    return median(took_s[1:])
