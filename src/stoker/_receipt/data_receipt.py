"""A receipt: what one iteration over a loader handed over, as digests. ``loader.receipt()`` returns one."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from stoker._receipt import sketch
from stoker._receipt.mixing import MASK, Words

FORMAT = "stoker-receipt"
VERSION = 1


@dataclass(frozen=True, slots=True)
class ReceiptFacts:
    """Which data it was: the dataset, the samplers, and the place among the ranks.

    ``loader`` is a number that no other loader has. ``samplers`` are class names, outermost first; ``divided_by`` says
    for each of them by how many ranks it divides the data, 0 for none. ``shuffles`` is None where that is not known.
    ``replacement``: the sampler may draw a sample more than once.
    """

    name: str = "loader"
    dataset: str = ""
    kind: str = "map"
    length: int | None = None
    identity: str = ""
    rank: int = 0
    world_size: int = 1
    samplers: tuple[str, ...] = ()
    divided_by: tuple[int, ...] = ()
    sampler_length: int | None = None
    shuffles: bool | None = None
    replacement: bool = False
    batch_size: int | None = None
    drop_last: bool = False
    rng: str = "batch"
    pid: int = 0
    loader: int = 0
    began_unix_ns: int = 0


@dataclass(frozen=True, slots=True)
class ReceiptBefore:
    """What a state says was handed over before it: the sums of all legs of the epoch up to it."""

    batches: int
    samples: int
    digest: int
    samples_digest: int


NOTHING = ReceiptBefore(0, 0, 0, 0)


@dataclass(slots=True)
class DataReceipt:
    """What one iteration handed over. Digests are sums modulo 2^64, so those of ranks and legs add up.

    A run that is ``resumed`` has legs. ``before`` is what the state that was loaded says of the epoch so far; ``first`` is the
    number of the first batch. ``previous`` is the digest of the epoch before this one, 0 for none.

    ``digest`` is of the indices of each batch in their order, with the number of the batch. ``order`` is the same with the place in
    the order of delivery; it differs with ``in_order=False`` only. ``samples_digest`` does not depend on any order. ``entries``
    has one sum of ``digest`` for every ``grain`` batches. ``contents`` has hashes of the first batches of an iterable dataset,
    which has no indices.
    """

    id: int
    facts: ReceiptFacts
    epoch: int
    seed: int
    sampler_epoch: int | None
    first: int
    resumed: bool = False
    previous: int = 0
    before: ReceiptBefore | None = None
    batches: int = 0
    samples: int = 0
    finished: bool = False
    digest: int = 0
    order: int = 0
    samples_digest: int = 0
    ascending: bool = True
    """Whether the indices came in ascending order."""
    whole: bool = True
    """Whether all indices were whole numbers."""
    told: bool = True
    """Whether the digest knows every index by its value."""
    bad: list[tuple[int, str]] = field(default_factory=list)
    """Bad samples (``on_bad_sample``): the number of the batch, and the index. ``bad_count`` counts those too that are not kept."""
    bad_count: int = 0
    replaced: bool = False
    """Whether other samples stand in for the bad ones."""
    failed: list[int] = field(default_factory=list)
    """Batches whose error was raised: nothing of them was handed over."""
    failed_count: int = 0
    contents: list[tuple[int, int]] = field(default_factory=list)
    missing: str | None = None
    """Why a part of the receipt is missing; None: none is."""
    grain: int = 1
    entries: Words = field(default_factory=lambda: np.zeros(0, np.uint64))
    sketch: Words = field(default_factory=sketch.empty)

    @property
    def end(self) -> int:
        """The number behind that of its last batch."""
        return self.first + self.batches

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON: all but the digests of single batches. Digests are texts of 16 digits."""
        plain: dict[str, Any] = {"format": FORMAT, "version": VERSION, **asdict(self.facts)}
        for name in PLAIN:
            plain[name] = getattr(self, name)
        for name in ("previous", "digest", "order", "samples_digest"):
            plain[name] = digits(plain[name])
        plain["samplers"], plain["divided_by"] = list(self.facts.samplers), list(self.facts.divided_by)
        plain["bad"] = [list(each) for each in self.bad]
        plain["failed"] = list(self.failed)
        return plain

    def save(self, path: str | os.PathLike[str]) -> None:
        """Add this receipt to a file, which `stoker verify` reads. A new file is private to the user.

        A file can hold the receipts of many epochs. One that is saved again takes the place of the earlier one.
        """
        from stoker._receipt import receipt_file

        receipt_file.save(self, path)


PLAIN = (
    "epoch", "seed", "sampler_epoch", "first", "resumed", "previous", "batches", "samples", "finished", "digest", "order",
    "samples_digest", "ascending", "whole", "told", "bad", "bad_count", "replaced", "failed", "failed_count", "missing",
)  # fmt: skip
"""The entries of a receipt that are single values or short lists."""


def digits(value: int) -> str:
    """A digest as a text."""
    return f"{value & MASK:016x}"


def coarser(entries: Words, first: int, grain: int, wanted: int) -> Words:
    """Entries that begin with batch ``first`` at another, larger grain: a power of two."""
    if grain == wanted or not len(entries):
        return entries
    place = first // grain
    blocks = (np.arange(place, place + len(entries)) // (wanted // grain)) - first // wanted
    found = np.zeros(int(blocks[-1]) + 1, np.uint64)
    np.add.at(found, blocks, entries)
    return found
