"""Walks through samplers that wrap each other: a batch sampler around a sampler, and wrappers around both."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_DEEP = 4
"""Accelerate's way to deal out batches takes three: its own batch sampler, torch's, and the sampler."""


def layers(sampler: Any) -> Iterator[Any]:
    """The sampler and those inside it, outermost first, as far as they are kept under the names that torch gives them."""
    for _ in range(_DEEP):
        if sampler is None:
            return
        yield sampler
        inner = getattr(sampler, "sampler", None)
        sampler = getattr(sampler, "batch_sampler", None) if inner is None else inner
