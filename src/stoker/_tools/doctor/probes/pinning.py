"""Asks torch for an accelerator and measures what one thread copies, in about 50 ms.

Only where the loader pins or has ``device=``, it page-locks a little memory. That initialises the accelerator in this process.
"""

from __future__ import annotations

from time import perf_counter

import torch

from stoker._runtime.device.host_registers import HOST_REGISTERS
from stoker._tools.doctor.device_test.measures import SharedBlock
from stoker._tools.doctor.facts.host.pinning import PinningFacts
from stoker._tools.sandbox.subject import Subject

_BLOCK_BYTES = 16 << 20
_TIMES = 5
_TRIED_BYTES = 1 << 20


def probe(subject: Subject) -> PinningFacts:
    """What is measured are copies into plain memory: most loaders that are examined use no accelerator."""
    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    pin_error, register_error = "", ""
    if found is not None and _may_use(found):
        device = getattr(subject.loader, "device", None)
        if device is not None or getattr(subject.loader, "pin_memory", False):
            pin_error = _pin_error()
        if device is not None:
            register_error = _register_error(found)
    return PinningFacts(
        accelerator=None if found is None else found.type,
        devices=0 if found is None else torch.accelerator.device_count(),
        copy_bytes_s=_copied(),
        pin_error=pin_error,
        register_error=register_error,
    )


def _may_use(device: torch.device) -> bool:
    """Whether this process may initialise the device: it is no fork of one that has."""
    is_in_bad_fork = getattr(getattr(torch, device.type, None), "_is_in_bad_fork", None)
    return is_in_bad_fork is None or not is_in_bad_fork()


def _pin_error() -> str:
    try:
        torch.empty(_TRIED_BYTES, dtype=torch.uint8, pin_memory=True)
    except RuntimeError as error:
        return str(error).partition("\n")[0] or type(error).__name__
    return ""


def _register_error(device: torch.device) -> str:
    if device.type not in HOST_REGISTERS:
        return ""  # nobody's mistake
    block = SharedBlock(device, _TRIED_BYTES)
    try:
        return block.registration.error
    finally:
        block.close()


def _copied() -> float:
    """The best of a few: the first touches the pages."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        source = torch.ones(_BLOCK_BYTES, dtype=torch.uint8)
        target = torch.zeros(_BLOCK_BYTES, dtype=torch.uint8)
        took_s = []
        for _ in range(_TIMES):
            started = perf_counter()
            target.copy_(source)
            took_s.append(perf_counter() - started)
    finally:
        torch.set_num_threads(before)
    return _BLOCK_BYTES / min(took_s)
