"""Draws seeds and orders on the CPU, whatever torch's default device is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from stoker._runtime.protocol.default_device import default_device


def _draws_on_cpu() -> bool:
    return default_device().type == "cpu"


def on_cpu(generator: torch.Generator | None) -> AbstractContextManager[Any]:
    """A context in which seeds and orders are drawn on the CPU, unless the user's generator is on another device."""
    if _draws_on_cpu() or (generator is not None and generator.device.type != "cpu"):
        return nullcontext()
    return torch.device("cpu")


def drawn_on_cpu(sampler: Iterator[Any], generator: torch.Generator | None) -> Iterator[Any]:
    """The sampler's iterator, such that it draws on the CPU."""
    if _draws_on_cpu():
        return sampler
    return _CpuDraws(sampler, generator)


class _CpuDraws:
    """A sampler's iterator that draws on the CPU."""

    def __init__(self, sampler: Iterator[Any], generator: torch.Generator | None) -> None:
        self._sampler = sampler
        self._generator = generator

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        with on_cpu(self._generator):
            return next(self._sampler)
