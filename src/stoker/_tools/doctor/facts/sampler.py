"""A bounded look at the loader's sampler: what indices it gives, and how many batches each rank gets."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OutOfRangeIndex:
    """An index the dataset has no sample for."""

    index: int
    position: int
    """Its place in the sampler's order."""
    error: str
    """What the dataset raised when it was asked for it: "IndexError: list index out of range"; "" when it gave a sample."""


@dataclass(frozen=True, slots=True)
class SamplerFacts:
    """``name`` is the class of the sampler, or of the user's batch sampler."""

    name: str
    seen: int
    """Indices that were looked at; 0 when the sampler is torch's own over this dataset, which needs no look."""
    length: int | None
    """len(dataset)."""
    outside: OutOfRangeIndex | None = None
    outsiders: int = 0
    """How many of ``seen`` lie outside."""
    one_shot: bool = False
    """Whether it is an iterator, or a generator: it has one epoch and is empty afterwards."""
    empty: bool = False
    error: str = ""
    """What it raised itself; "len(dataset): ..." where it asked the dataset for its length, which raised."""
    repeats: bool = False
    """Whether it draws the same random order in every epoch until its ``set_epoch`` is called."""
    world: int = 1
    ranks: tuple[tuple[int, int], ...] = ()
    """Some ranks, each with its number of batches (of samples, without a batch size); () when it is not dealt out to ranks."""
