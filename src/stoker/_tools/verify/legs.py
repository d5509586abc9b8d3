"""Do the legs of a resumed run add up to an epoch? And does every epoch have an order of its own?"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from stoker._receipt.data_receipt import DataReceipt
from stoker._receipt.mixing import MASK, unkeyed
from stoker._tools.verify.answer import Level, VerifyAnswer, counted
from stoker._tools.verify.epochs import RankEpoch, VerifiedEpoch, WorldEpoch
from stoker._tools.verify.runs import VerifiedRun

_Said = tuple[Level, str, str]
_MATCHES = 3
"""Batches in a row that make a repetition."""


def add_up(run: VerifiedRun, title: str) -> Iterator[VerifyAnswer]:
    """An answer for each epoch that has several legs, or begins in its middle."""
    for number, epoch in run.epochs.items():
        for level, code, text in _of_worlds(epoch) if len(epoch.worlds) > 1 else _of_world(epoch.last):
            yield VerifyAnswer("legs", level, code, f"{title}{text}", run.name, (number,))


def _of_world(world: WorldEpoch) -> Iterator[_Said]:
    """An epoch on one number of ranks: each rank for itself."""
    for each in world.ranks:
        where = f"rank {each.rank}: " if world.size > 1 else ""
        for level, code, text in _added(each):
            yield level, code, f"{where}{text}"


def _added(epoch: RankEpoch) -> Iterator[_Said]:
    legs = epoch.legs
    if len(legs) == 1 and legs[0].first == 0:
        return
    faults = list(_wrong(epoch))
    yield from faults
    if faults:
        return
    yield from _taken_again(_again(epoch))
    ends = ", ".join(
        f"{leg.first}–{leg.end - 1}" if leg.batches else f"none from {leg.first}" for leg in legs
    )
    if epoch.finished:
        text = f"{counted(len(legs), 'leg')} (batches {ends}) add up to an epoch of {epoch.end} batches"
        yield "ok", "adds-up", text
    else:
        yield "note", "unfinished", f"{counted(len(legs), 'leg')} (batches {ends}); the epoch did not end"


def _of_worlds(epoch: VerifiedEpoch) -> Iterator[_Said]:
    """An epoch that went on with another number of ranks: the legs of each number, and where one follows another."""
    faults = []
    for world in epoch.worlds:
        for each in world.ranks:
            where = f"rank {each.rank} of {world.size}: "
            faults += [(level, code, f"{where}{text}") for level, code, text in _wrong(each)]
    for place in range(1, len(epoch.worlds)):
        faults += _seam(epoch.worlds[:place], epoch.worlds[place])
    yield from faults
    if faults:
        return
    within = max(_again(each) for world in epoch.worlds for each in world.ranks)
    beyond = max(world.end - later.begin for world, later in itertools.pairwise(epoch.worlds))
    yield from _taken_again(max(0, within) + max(0, beyond))
    spans = ", then ".join(
        f"{counted(world.size, 'rank')} (batches {world.begin}–{world.end - 1})" for world in epoch.worlds
    )
    if all(each.finished for each in epoch.last.ranks):
        yield "ok", "adds-up", f"the legs of {spans} add up to an epoch of {epoch.last.end} batches"
    else:
        yield "note", "unfinished", f"the legs of {spans}; the epoch did not end"


def _seam(earlier: list[WorldEpoch], later: WorldEpoch) -> Iterator[_Said]:
    """Whether the legs on one number of ranks follow those on others."""
    before = earlier[-1]
    if len(earlier) > 1 and later.begin <= before.begin < before.end:
        text = (
            f"repeated data: {_batches(before.begin, before.end - before.begin)} came on {counted(before.size, 'rank')} and "
            f"again on {later.size}, which went on from an older state. That is right only if the weights were dropped, too; "
            "else save loader.state_dict() anew with every checkpoint"
        )
        yield "fault", "repeated", text
        return
    reached = max(world.end for world in earlier)
    if reached < later.begin:
        what = _batches(reached, later.begin - reached)
        text = f"no leg handed over {what}: {counted(later.size, 'rank')} began at batch {later.begin}"
        yield "fault", "gap", text
        return
    for each in before.ranks:
        if each.end < later.begin <= before.end:
            what = _batches(each.end, later.begin - each.end)
            text = (
                f"rank {each.rank} of {before.size}: the receipts of {what} are not here; the state that "
                f"{counted(later.size, 'rank')} went on from counts them"
            )
            yield "note", "leg-missing", text


def _wrong(epoch: RankEpoch) -> Iterator[_Said]:
    yield from _repeated(epoch)
    yield from _gaps(epoch)


def _again(epoch: RankEpoch) -> int:
    """How many batches a leg handed over behind the place where the next one began."""
    return sum(max(0, leg.end - later.first) for leg, later in itertools.pairwise(epoch.legs))


def _taken_again(count: int) -> Iterator[_Said]:
    if count:
        text = (
            f"{counted(count, 'batch')} after the last saved state came again, as they should when the weights went back "
            "to it too"
        )
        yield "note", "taken-again", text


def _gaps(epoch: RankEpoch) -> Iterator[_Said]:
    end = epoch.begin
    for place, leg in enumerate(epoch.legs, 1):
        if leg.first > end:
            what = _batches(end, leg.first - end)
            if leg.before is not None and leg.before.batches == leg.first:
                text = f"the receipts of {what} are not here; the state that leg {place} went on from counts them"
                yield "note", "leg-missing", text
            else:
                yield "fault", "gap", f"no leg handed over {what}: leg {place} begins at batch {leg.first}"
        end = max(end, leg.end)


def _repeated(epoch: RankEpoch) -> Iterator[_Said]:
    legs = epoch.legs
    for place, leg in enumerate(legs[1:], 2):
        earlier = legs[: place - 1]
        found = _same_content(leg, earlier) or _same_indices(leg, earlier)
        if found is not None:
            number, (leg_number, was, count) = found
            text = (
                f"repeated data: leg {place} handed over {_batches(was, count)} of leg {leg_number} again, as its "
                f"{_batches(number, count)}. The sampler or dataset did not go on where its state was taken: "
                "its state_dict() is stale after a resume"
            )
            yield "fault", "repeated", text
        elif (place > 2 or epoch.begin) and leg.first <= earlier[-1].first and earlier[-1].batches:
            before = earlier[-1]
            last = min(before.end, max(leg.end, leg.first + 1)) - 1
            text = (
                f"repeated data: batches {before.first} to {last} came in leg {place - 1} and again in leg {place}, which went on "
                f"from the same state or an older one. That is right only if the weights of leg {place - 1} were dropped; "
                "else save loader.state_dict() anew with every checkpoint"
            )
            yield "fault", "repeated", text


def _batches(first: int, count: int) -> str:
    return f"batch {first}" if count == 1 else f"batches {first} to {first + count - 1}"


_Match = tuple[int, tuple[int, int, int]]
"""Where a repetition begins; in which leg it was before, at which batch, and how many."""


def _same_indices(leg: DataReceipt, earlier: list[DataReceipt]) -> _Match | None:
    """Batches of earlier legs that came again under other numbers."""
    mine = _hashes(leg)
    if leg.facts.kind != "map" or mine is None or not len(mine):
        return None
    wanted = min(_MATCHES, len(mine))
    for place, other in enumerate(earlier, 1):
        theirs = _hashes(other)
        if theirs is None:
            continue
        for at in np.flatnonzero(theirs == mine[0]).tolist():
            same = min(len(mine), len(theirs) - at)
            differs = np.flatnonzero(theirs[at : at + same] != mine[:same])
            count = int(differs[0]) if len(differs) else same
            if count >= min(wanted, same) and other.first + at != leg.first:
                return leg.first, (place, other.first + at, count)
    return None


def _hashes(leg: DataReceipt) -> np.ndarray[tuple[int, ...], np.dtype[np.uint64]] | None:
    if leg.grain > 1 or leg.facts.kind != "map":
        return None
    numbers = np.arange(leg.first, leg.first + len(leg.entries), dtype=np.uint64)
    return unkeyed(leg.entries, numbers)


def _same_content(leg: DataReceipt, earlier: list[DataReceipt]) -> _Match | None:
    """First batches of an earlier leg of a stream that came again."""
    contents = [content for _, content in leg.contents]
    if not contents or len(set(contents)) < min(2, len(contents)):
        return None
    for place, other in enumerate(earlier, 1):
        theirs = {content: number for number, content in other.contents if number != leg.contents[0][0]}
        same = [theirs[content] for content in contents if content in theirs]
        if len(same) >= min(2, len(contents)):
            return leg.contents[0][0], (place, min(same), len(same))
    return None


def see_orders(run: VerifiedRun, title: str) -> Iterator[VerifyAnswer]:
    """A fault where two epochs had the same order, and should not have."""
    before: dict[tuple[int, int], int] = {}
    for number, epoch in run.epochs.items():
        for each in epoch.ranks if len(epoch.counted) == 1 else ():
            facts, last = each.last.facts, each.last
            if (
                facts.kind != "map"
                or not each.finished
                or facts.shuffles is False
                or last.ascending
                or not last.samples
            ):
                continue
            digest = sum(leg.digest for leg in each.legs) & MASK
            if each.legs[0].before is not None:
                digest = (digest + each.legs[0].before.digest) & MASK
            if len(each.legs) > 1 and not each.contiguous:
                continue
            known = before.setdefault((each.rank, digest), number)
            if known != number:
                yield _stale(run, title, number, known, each)
                break


def _stale(run: VerifiedRun, title: str, epoch: int, known: int, each: RankEpoch) -> VerifyAnswer:
    last = each.last
    if last.sampler_epoch is not None:
        text = (
            f"stale set_epoch: the same batches in the same order as in epoch {known}; the sampler counts epoch "
            f"{last.sampler_epoch}. Call sampler.set_epoch(epoch) before every epoch"
        )
        return VerifyAnswer("order", "fault", "stale-set-epoch", f"{title}{text}", run.name, (epoch,))
    text = (
        f"the same batches in the same order as in epoch {known}: is the generator seeded anew every epoch?"
    )
    level: Level = "fault" if last.facts.shuffles else "note"
    return VerifyAnswer("order", level, "same-order", f"{title}{text}", run.name, (epoch,))
