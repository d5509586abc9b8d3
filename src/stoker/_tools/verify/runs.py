"""Finds out which receipts belong together: loaders, runs, ranks, and the legs of a run that was resumed.

    receipts ──by loader──► parts, which end where a state is loaded ──by what the states say──► tracks: a rank's part of a run

A part that began from a state belongs to the part whose digests that state has. The first track of each rank is the first run, and
so on, in the order in which they were given. A state that another number of ranks wrote has no digests for a rank: such a part
belongs to a run that was handed over up to there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from stoker._receipt.data_receipt import DataReceipt
from stoker._receipt.mixing import MASK, total
from stoker._tools.verify.epochs import VerifiedEpoch, epoch_of
from stoker._tools.verify.sources import ReceiptSource


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
    def epochs(self) -> dict[int, VerifiedEpoch]:
        """By number."""
        found: dict[int, list[DataReceipt]] = {}
        for receipt in self.receipts:
            found.setdefault(receipt.epoch, []).append(receipt)
        return {number: epoch_of(receipts) for number, receipts in sorted(found.items())}


@dataclass(slots=True)
class VerifiedLoader:
    """The runs of one loader, in the order in which they were given."""

    name: str
    runs: list[VerifiedRun] = field(default_factory=list)


@dataclass(slots=True)
class _RankTrack:
    """A rank's part of a run. ``stray``: its beginning is not here, or another number of ranks wrote the state that it has."""

    source: int
    receipts: list[DataReceipt]
    stray: bool = False


def loaders_of(sources: Sequence[ReceiptSource]) -> list[VerifiedLoader]:
    """Sort receipts into loaders and runs."""
    numbers: dict[tuple[int, int, int, int, str], int] = {}
    keyed: dict[tuple[str, int], list[_RankTrack]] = {}
    for track in _tracks(sources):
        facts = track.receipts[0].facts
        world = facts.world_size if track.stray else 0
        place = (track.source, facts.pid, facts.rank, world, facts.name)
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
    """The first track of each rank is the first run, and so on. Two numbers of ranks are two runs, unless the second has strays."""
    runs: dict[tuple[int, int], _RunTracks] = {}
    places: dict[tuple[int, int], int] = {}
    for track in tracks:
        if not track.stray:
            facts = track.receipts[0].facts
            of_rank = facts.world_size, facts.rank
            place = places[of_rank] = places.get(of_rank, -1) + 1
            runs.setdefault((facts.world_size, place), _RunTracks(VerifiedRun(name))).add(track)
    found = list(runs.values())
    strays = [each for each in tracks if each.stray]
    for track in sorted(strays, key=lambda each: each.receipts[0].facts.began_unix_ns):
        run = _run_before(track, found)
        if run is None:
            run = _RunTracks(VerifiedRun(name))
            found.append(run)
        run.add(track)
    return [each.run for each in found]


@dataclass(slots=True)
class _RunTracks:
    """A run, the sources that its tracks are from, and when the first of them began."""

    run: VerifiedRun
    sources: set[int] = field(default_factory=set)
    began_unix_ns: float = math.inf

    def add(self, track: _RankTrack) -> None:
        self.run.tracks.append(track.receipts)
        self.sources.add(track.source)
        self.began_unix_ns = min(self.began_unix_ns, track.receipts[0].facts.began_unix_ns)

    def reaches(self, stray: DataReceipt) -> bool:
        return any(_reaches(leg, stray) for track in self.run.tracks for leg in track)


def _run_before(stray: _RankTrack, runs: list[_RunTracks]) -> _RunTracks | None:
    """The run that a stray goes on with: the latest that comes up to its first batch, from the same source if there is one.

    Otherwise the only run, or one that has such strays of other ranks.
    """
    first = stray.receipts[0]
    before = [each for each in runs if each.reaches(first)]
    here = [each for each in before if stray.source in each.sources]
    if here or before:
        return max(here or before, key=lambda each: each.began_unix_ns)
    if len(runs) == 1:
        return runs[0]
    return next((each for each in runs if _is_beside(first, each.run)), None)


def _reaches(leg: DataReceipt, stray: DataReceipt) -> bool:
    """Whether a stray may go on where this leg was left."""
    if leg.facts.began_unix_ns >= stray.facts.began_unix_ns:
        return False
    if not stray.first:
        return leg.epoch in (stray.epoch - 1, stray.epoch)
    return leg.epoch == stray.epoch and leg.first < stray.first <= leg.end


def _is_beside(stray: DataReceipt, run: VerifiedRun) -> bool:
    """Whether a run began with a stray like this one on another rank."""
    firsts = [track[0] for track in run.tracks]
    ranks = [each.facts.rank for each in firsts]
    return stray.facts.rank not in ranks and all(
        (each.epoch, each.first, each.facts.world_size) == (stray.epoch, stray.first, stray.facts.world_size)
        for each in firsts
    )


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
            return any(each.first < receipt.first <= each.end for each in legs)
        return epoch < 0 or any(_whole(each) == receipt.previous for each in legs)
    return any(
        _digest_at(each, before.batches) == before.digest for each in track if each.epoch == receipt.epoch
    )


def _whole(receipt: DataReceipt) -> int:
    return (receipt.digest + (receipt.before.digest if receipt.before is not None else 0)) & MASK


def _digest_at(receipt: DataReceipt, batches: int) -> int | None:
    """The digest of an epoch up to a batch, as this leg had it; None where it does not tell."""
    was = receipt.before.digest if receipt.before is not None else 0
    if batches == receipt.end:
        return _whole(receipt)
    if not receipt.first <= batches < receipt.end or receipt.grain > 1:
        return None
    return (was + total(receipt.entries[: batches - receipt.first])) & MASK
