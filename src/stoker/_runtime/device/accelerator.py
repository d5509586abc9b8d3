"""``torch.accelerator`` under one set of names: torch 2.6 lacks some of them, and raises where later ones return None."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch

_torch: Any = torch.accelerator


def available_accelerator() -> torch.device | None:
    """The accelerator of this process, without a number; None if there is none, or no driver."""
    return _torch.current_accelerator() if _torch.is_available() else None


def built_accelerator() -> torch.device | None:
    """The accelerator that this torch was built for; None for the CPU alone."""
    try:
        found: torch.device | None = _torch.current_accelerator()
    except RuntimeError:  # torch 2.6
        return None
    return found


def current_device_index() -> int:
    """The number of the current device. Raises RuntimeError without an accelerator."""
    ask = getattr(_torch, "current_device_index", None) or _torch.current_device_idx
    return int(ask())


def set_device_index(index: int) -> None:
    """Make this the current device of the thread."""
    change = getattr(_torch, "set_device_index", None) or _torch.set_device_idx
    change(index)


@contextmanager
def exchanged_stream(stream: torch.Stream) -> Iterator[None]:
    """Make this stream the current one for a while, where streams cannot do so themselves."""
    index = current_device_index()
    before = _torch.current_stream(stream.device.index)
    _torch.set_stream(stream)
    try:
        yield
    finally:
        _torch.set_stream(before)
        set_device_index(index)


def on_stream(stream: torch.Stream) -> AbstractContextManager[Any]:
    """Make this stream the current one for a while."""
    return stream if _STREAMS_ENTER else exchanged_stream(stream)


_STREAMS_ENTER = hasattr(torch.Stream, "__enter__")  # since torch 2.7
