"""Finds out which receipts belong together: loaders, runs, ranks, and the legs of a run that was resumed.

    receipts ──by loader──► parts, which end where a state is loaded ──by what the states say──► tracks: a rank's part of a run

A part that began from a state belongs to the part whose digests that state has. The first track of each rank is the first run, and
so on, in the order in which they were given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from stoker._receipt.data_receipt import DataReceipt, coarser
from stoker._receipt.mixing import MASK, Words, total
from stoker._tools.verify.sources import ReceiptSource


@dataclass(slots=True)
class RankEpoch:
    """One epoch of one rank: its legs in the order in which they began. The later one counts where two overlap."""

    rank: int
    epoch: int
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
        """How many batches it has in all."""
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
        return None if place else (samples, digest & MASK)

    @property
    def contiguous(self) -> bool:
        """Whether each leg begins where the one before ended, and the first at the beginning."""
        ends = [0, *(leg.end for leg in self.legs[:-1])]
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
class VerifiedRun:
    """One run of one loader. ``epochs`` has by number the ranks' parts of each."""

    name: str
    tracks: list[list[DataReceipt]] = field(default_factory=list)

    @property
    def receipts(self) -> list[DataReceipt]:
        """All, by the time at which they began."""
        found = [receipt for track in self.tracks for receipt in track]
        return sorted(found, key=lambda each: each.facts.began_unix_ns)

    @property
    def epochs(self) -> dict[int, list[RankEpoch]]:
        """By number: one entry for each rank."""
        found: dict[int, dict[int, RankEpoch]] = {}
        for receipt in self.receipts:
            ranks = found.setdefault(receipt.epoch, {})
            rank = receipt.facts.rank
            ranks.setdefault(rank, RankEpoch(rank, receipt.epoch)).legs.append(receipt)
        return {epoch: [ranks[rank] for rank in sorted(ranks)] for epoch, ranks in sorted(found.items())}


@dataclass(slots=True)
class VerifiedLoader:
    """The runs of one loader, in the order in which they were given."""

    name: str
    runs: list[VerifiedRun] = field(default_factory=list)


@dataclass(slots=True)
class _RankTrack:
    """A rank's part of a run, or a part of one whose beginning is not here (``stray``)."""

    source: int
    receipts: list[DataReceipt]
    stray: bool = False


def loaders_of(sources: Sequence[ReceiptSource]) -> list[VerifiedLoader]:
    """Sort receipts into loaders and runs."""
    numbers: dict[tuple[int, int, int, str], int] = {}
    keyed: dict[tuple[str, int], list[_RankTrack]] = {}
    for track in _tracks(sources):
        facts = track.receipts[0].facts
        place = (track.source, facts.pid, facts.rank, facts.name)
        number = numbers[place] = numbers.get(place, -1) + 1
        keyed.setdefault((facts.name, number), []).append(track)
    found = []
    for (name, number), tracks in keyed.items():
        title = name if number == 0 else f"{name} ({number + 1})"
        found.append(VerifiedLoader(title, _runs(title, tracks)))
    return found


def _tracks(sources: Sequence[ReceiptSource]) -> list[_RankTrack]:
    """Put parts behind those that they go on with. Tracks are in the order of the sources."""
    parts: list[_RankTrack] = []
    for place, source in enumerate(sources):
        latest: dict[int, _RankTrack] = {}
        for receipt in source.receipts:
            part = latest.get(receipt.facts.loader)
            if part is None or receipt.resumed:
                part = latest[receipt.facts.loader] = _RankTrack(place, [])
                parts.append(part)
            part.receipts.append(receipt)
    tracks: list[_RankTrack] = []
    for part in sorted(parts, key=lambda each: each.receipts[0].facts.began_unix_ns):
        first = part.receipts[0]
        before = _track_before(first, [each.receipts for each in tracks]) if first.resumed else None
        if before is None:
            part.stray = first.resumed
            tracks.append(part)
        else:
            before += part.receipts
    return sorted(tracks, key=lambda each: each.source)


def _runs(name: str, tracks: list[_RankTrack]) -> list[VerifiedRun]:
    """The first track of each rank is the first run, and so on."""
    runs: list[VerifiedRun] = []
    places: dict[int, int] = {}
    for track in tracks:
        if track.stray:
            continue
        rank = track.receipts[0].facts.rank
        place = places[rank] = places.get(rank, -1) + 1
        if place == len(runs):
            runs.append(VerifiedRun(name))
        runs[place].tracks.append(track.receipts)
    for track in tracks:
        if track.stray:  # on another number of ranks, or the legs before are not here
            if len(runs) != 1:
                runs.append(VerifiedRun(name))
            runs[-1].tracks.append(track.receipts)
    return runs


def _track_before(receipt: DataReceipt, tracks: list[list[DataReceipt]]) -> list[DataReceipt] | None:
    """The track that a leg goes on with: the latest whose digests its state has."""
    facts = receipt.facts
    for track in sorted(tracks, key=lambda each: each[-1].facts.began_unix_ns, reverse=True):
        last = track[-1].facts
        same = (last.name, last.rank, last.world_size) == (facts.name, facts.rank, facts.world_size)
        if same and _continues(receipt, track):
            return track
    return None


def _continues(receipt: DataReceipt, track: list[DataReceipt]) -> bool:
    before = receipt.before
    if receipt.first == 0 or before is None:
        epoch = receipt.epoch - (receipt.first == 0)
        legs = [each for each in track if each.epoch == epoch]
        if receipt.first:
            return bool(legs)
        return epoch < 0 or any(_whole(each) == receipt.previous for each in legs)
    return any(
        _digest_at(each, before.batches) == before.digest for each in track if each.epoch == receipt.epoch
    )


def _whole(receipt: DataReceipt) -> int:
    return (receipt.digest + (receipt.before.digest if receipt.before is not None else 0)) & MASK


def _digest_at(receipt: DataReceipt, batches: int) -> int | None:
    """The digest of an epoch up to a batch, as this leg had it; None where it does not tell."""
    if receipt.before is None and receipt.first:
        return None
    was = receipt.before.digest if receipt.before is not None else 0
    if batches == receipt.end:
        return _whole(receipt)
    if not receipt.first <= batches < receipt.end or receipt.grain > 1:
        return None
    return (was + total(receipt.entries[: batches - receipt.first])) & MASK
