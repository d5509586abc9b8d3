"""One epoch of a run: the legs of its ranks, and the numbers of ranks that worked on it in turn.

    epoch ──► worlds: 2 ranks, then 3 after an elastic resume ──► ranks ──► legs

Batches are counted on from one world to the next. So the batches 0 to 5 of two ranks may be followed by 6 to 11 of three.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from stoker._receipt.data_receipt import DataReceipt, coarser
from stoker._receipt.mixing import MASK, Words


@dataclass(slots=True)
class RankEpoch:
    """What one rank did of an epoch: its legs in the order in which they began. The later one counts where two overlap.

    ``begin`` is the batch at which its world began.
    """

    rank: int
    begin: int = 0
    legs: list[DataReceipt] = field(default_factory=list)

    @property
    def last(self) -> DataReceipt:
        """The leg that ended it."""
        return self.legs[-1]

    @property
    def finished(self) -> bool:
        """Whether the epoch came to its end."""
        return self.last.finished

    @property
    def end(self) -> int:
        """The number behind that of its last batch."""
        return self.last.end

    def sums(self) -> tuple[int, int] | None:
        """Samples and their digest in all. None where a leg that is not there, or overlaps, leaves that open."""
        samples = digest = 0
        place: int | None = None
        for leg in reversed(self.legs):
            if place is not None and leg.end != place:
                return None
            samples, digest = samples + leg.samples, digest + leg.samples_digest
            if leg.before is not None:
                return samples + leg.before.samples, (digest + leg.before.samples_digest) & MASK
            place = leg.first
        return None if place != self.begin else (samples, digest & MASK)

    @property
    def contiguous(self) -> bool:
        """Whether each leg begins where the one before ended, and the first at the beginning."""
        ends = [self.begin, *(leg.end for leg in self.legs[:-1])]
        return all(leg.first == end for leg, end in zip(self.legs, ends, strict=True))

    @property
    def in_order(self) -> bool:
        """Whether batches were handed over in the order of their numbers."""
        return all(leg.order == leg.digest for leg in self.legs)

    def entries(self, grain: int) -> Words:
        """One sum per ``grain`` batches of the whole epoch. Where legs overlap, the later one counts."""
        fine = max(leg.grain for leg in self.legs)
        found = np.zeros(-(-max(leg.end for leg in self.legs) // fine), np.uint64)
        for leg in self.legs:
            mine = coarser(leg.entries, leg.first, leg.grain, fine)
            start = leg.first // fine
            if fine == 1:
                found[start:] = 0
            found[start : start + len(mine)] += mine
        return coarser(found, 0, fine, max(fine, grain))

    @property
    def grain(self) -> int:
        """How many batches an entry stands for."""
        return max(leg.grain for leg in self.legs)


@dataclass(slots=True)
class WorldEpoch:
    """What one number of ranks (``size``) did of an epoch, from batch ``begin`` on."""

    size: int
    begin: int
    ranks: list[RankEpoch]

    @property
    def end(self) -> int:
        """The number behind that of the last batch of any rank."""
        return max(each.end for each in self.ranks)

    @property
    def absent(self) -> list[int]:
        """The ranks whose receipts are not here."""
        return sorted(set(range(self.size)) - {each.rank for each in self.ranks})


@dataclass(slots=True)
class VerifiedEpoch:
    """One epoch of a run. It has several worlds only after an elastic resume."""

    worlds: list[WorldEpoch]

    @property
    def last(self) -> WorldEpoch:
        """The world that ended it."""
        return self.worlds[-1]

    @property
    def counted(self) -> list[WorldEpoch]:
        """The worlds whose batches count: not those before one that began the epoch again."""
        again = max(place for place, each in enumerate(self.worlds) if not place or not each.begin)
        return self.worlds[again:]

    @property
    def ranks(self) -> list[RankEpoch]:
        """The ranks of all worlds that count."""
        return [rank for world in self.counted for rank in world.ranks]

    @property
    def legs(self) -> list[DataReceipt]:
        """The legs of these."""
        return [leg for rank in self.ranks for leg in rank.legs]

    @property
    def joined(self) -> bool:
        """Whether each world ended on every rank where the next one begins."""
        pairs = itertools.pairwise(self.counted)
        return all(rank.end == later.begin for world, later in pairs for rank in world.ranks)

    def sums(self) -> tuple[int, int] | None:
        """Samples and their digest, of all ranks. None where receipts that are not here, or that overlap, leave that open."""
        sums = [each.sums() for each in self.ranks]
        known = [each for each in sums if each is not None]
        here = all(len(each.ranks) == each.size for each in self.counted)
        if len(known) < len(sums) or not self.joined or not here:
            return None
        return sum(samples for samples, _ in known), sum(digest for _, digest in known) & MASK


def epoch_of(receipts: Sequence[DataReceipt]) -> VerifiedEpoch:
    """One epoch, from its receipts in the order in which they began."""
    worlds: list[WorldEpoch] = []
    for size, legs in itertools.groupby(receipts, lambda each: each.facts.world_size):
        worlds.append(_world(size, list(legs), first=not worlds))
    return VerifiedEpoch(worlds)


def _world(size: int, legs: list[DataReceipt], *, first: bool) -> WorldEpoch:
    """A state that another number of ranks wrote has no sums for these: their first legs have nothing before them."""
    begins = [leg.first for leg in legs if leg.before is None] or [leg.first for leg in legs]
    begin = 0 if first else min(begins)
    ranks: dict[int, RankEpoch] = {}
    for leg in legs:
        ranks.setdefault(leg.facts.rank, RankEpoch(leg.facts.rank, begin)).legs.append(leg)
    return WorldEpoch(size, begin, [ranks[rank] for rank in sorted(ranks)])
