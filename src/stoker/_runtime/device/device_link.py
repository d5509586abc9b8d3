"""What a loader has of its device: one side stream for life, how host memory is page-locked, and counts."""

from __future__ import annotations

import logging
import os
from collections import deque
from contextlib import suppress
from typing import Any

import torch

from stoker._runtime.device.copy_times import CopyTimes
from stoker._runtime.device.host_registers import HOST_REGISTERS
from stoker._runtime.transport.base import HostMemory

REGISTERED, PINNED, PAGEABLE, SYNCHRONOUS = "registered", "pinned", "pageable", "synchronous"
"""How batches reach the device, best first. Registered: straight from the slot. Pinned: through torch's page-locked memory.
Pageable: from ordinary memory. Synchronous: the device has no streams.
"""


_STEPS_BEHIND = 4
"""Batches that were handed over and that the device has not come to, at most."""
_STEPS_LEFT = 2
"""As many of them are left when a wait for the device ends. It has work, and the next calls need not wait: waking up costs more
CPU time than handing over a batch."""


class DeviceLink:
    """One per loader and device. On the thread that iterates, or on its staging thread; counts may be read on any.

    The stream is made once: torch's allocator keeps blocks by stream, and would strand those of a stream that is gone.
    """

    def __init__(self, device: torch.device, name: str) -> None:
        self.device = device
        self.owner_pid = os.getpid()
        self._name = name
        self._register = HOST_REGISTERS.get(device.type)
        self.memory = REGISTERED if self._register is not None else PINNED
        """The best way that is open."""
        self.fallbacks: list[str] = []
        """Why better ways are not used."""
        self.stream: torch.Stream | None = None
        try:
            self.stream = torch.Stream(device)
        except (RuntimeError, NotImplementedError, TypeError) as error:
            self._fall_back(SYNCHRONOUS, f"{device.type} has no streams ({_first_line(error)})")
        if self.memory == PINNED:
            self._fall_back(PINNED, f"memory cannot be registered with {device.type} from Python")
        self.times = CopyTimes(device)
        self._handed_over: deque[torch.Event] = deque()
        """One event per batch, on the stream that got it: the device has come to that batch."""
        self.batches = 0
        self.copies = 0
        self.copied_bytes = 0
        self.ahead = 0
        self.ahead_bytes = 0
        """Batches that are on the device, or on their way, and not taken."""

    def handed_over(self, consumer: torch.Stream) -> None:
        """A batch was handed over to this stream."""
        self._handed_over.append(consumer.record_event())

    def hold_back(self, *, ready: bool) -> None:
        """Wait for the device if the loop runs too far ahead of it. ``ready``: the next batch is there.

        Every batch that the device has not reached occupies its memory. A loop that synchronises now and then never waits here.
        Without a batch the loop would wait for data next. So it waits for the device sooner: that time is no wait for data.
        """
        handed_over = self._handed_over
        while handed_over and handed_over[0].query():
            handed_over.popleft()
        if len(handed_over) > (_STEPS_BEHIND if ready else _STEPS_LEFT):
            handed_over[-1 - _STEPS_LEFT].synchronize()  # on one stream the older ones are done, too
            while len(handed_over) > _STEPS_LEFT:
                handed_over.popleft().synchronize()

    def locks(self, memory: HostMemory) -> bool:
        """Whether a copy straight from this slot is asynchronous. Registers it at its first use."""
        if memory.locked_bytes >= memory.nbytes:
            return True
        register = self._register
        if register is None or self.memory != REGISTERED:
            return False
        code: object
        try:
            code = memory.lock(register.register, register.unregister)
        except Exception as error:  # a driver that is not there at all
            code = _first_line(error)
        if not code:
            return True
        text = f"registering {memory.nbytes / 1e6:.3g} MB with the driver failed (error {code})"
        self._fall_back(PINNED, f"{text}: containers, WSL and quotas refuse it")
        return False

    def cannot_pin(self, error: BaseException) -> None:
        """torch could not page-lock memory."""
        self._fall_back(PAGEABLE, f"torch could not pin memory ({_first_line(error)})")

    def _fall_back(self, memory: str, why: str) -> None:
        self.memory = memory
        text = f"{_WAYS[memory]}, because {why}"
        self.fallbacks.append(text)
        with suppress(Exception):
            logging.getLogger("stoker").warning("%s: %s", self._name, text)

    def as_dict(self, registered_bytes: int) -> dict[str, Any]:
        """The entry ``loader.stats()["device"]``."""
        return {
            "device": str(self.device),
            "memory": self.memory,
            "fallbacks": list(self.fallbacks),
            "batches": self.batches,
            "copies": self.copies,
            "copied_bytes": self.copied_bytes,
            "copied_ns": self.times.copied_ns,
            "ahead": self.ahead,
            "ahead_bytes": self.ahead_bytes,
            "registered_bytes": registered_bytes,
        }


_WAYS = {
    PINNED: "batches go through torch's pinned memory",
    PAGEABLE: "batches go to the device from pageable memory",
    SYNCHRONOUS: "batches are copied synchronously",
}


def _first_line(error: BaseException) -> str:
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
