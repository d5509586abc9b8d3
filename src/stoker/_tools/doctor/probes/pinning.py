"""Asks torch for an accelerator and measures what one thread copies. Takes about 50 ms; initialises no accelerator."""

from __future__ import annotations

from time import perf_counter

import torch

from stoker._tools.doctor.facts.pinning import PinningFacts
from stoker._tools.sandbox.subject import Subject

_BLOCK_BYTES = 16 << 20
_TIMES = 5


def probe(subject: Subject) -> PinningFacts:
    """Copies are into plain memory: to pin some would initialise the accelerator in a fork, where it may not be."""
    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return PinningFacts(
        accelerator=None if found is None else found.type,
        devices=0 if found is None else torch.accelerator.device_count(),
        copy_bytes_s=_copied(),
    )


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
