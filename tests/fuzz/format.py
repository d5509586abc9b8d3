"""Defines a format: whole inputs to begin with, how they are damaged, the reader under test, and the errors it documents."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from random import Random

from tests.fuzz import mutation

Reader = Callable[[bytes, Path], object]
"""Reads one input. The folder is empty, and the only place where the reader may write."""

Mutator = Callable[[Random, bytes], bytes]


@dataclass(frozen=True)
class Format:
    """One kind of file or stream. ``weight`` is its share of a campaign over several formats.

    ``errors`` are the documented errors of the reader: it may raise these and no others. An error without a message counts as
    undocumented. ``mutate`` makes an input of a whole one; a format with checksums sets them anew there.
    """

    name: str
    make_seeds: Callable[[], list[bytes]]
    read: Reader
    errors: tuple[type[BaseException], ...]
    mutate: Mutator = mutation.any_bytes
    weight: int = 1
    tokens: tuple[bytes, ...] = field(default=())

    @cached_property
    def seeds(self) -> list[bytes]:
        """Whole inputs."""
        return self.make_seeds()

    def input(self, seed: int, number: int) -> bytes:
        """The input of this number. Pure."""
        dice = Random(f"{self.name} {seed} {number}")
        return self.mutate(dice, dice.choice(self.seeds))
