"""Do the receipts of all ranks cover every sample exactly once?"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np

from stoker._receipt import sketch
from stoker._receipt.data_receipt import DataReceipt, ReceiptFacts
from stoker._receipt.mixing import Words, total
from stoker._receipt.sketch import SketchDifference
from stoker._tools.verify.answer import Level, VerifyAnswer, counted, numbers
from stoker._tools.verify.epochs import RankEpoch, VerifiedEpoch
from stoker._tools.verify.runs import VerifiedRun

_Said = tuple[Level, str, str]
_USUAL = (
    "SequentialSampler",
    "RandomSampler",
    "DistributedSampler",
    "ElasticDistributedSampler",
    "BatchSampler",
)
"""Samplers that name every sample of a dataset."""

_MOST_SAMPLES = 1 << 30
"""Which samples of a larger dataset were handed over is not worked out: that would take minutes."""


def cover(run: VerifiedRun, title: str) -> Iterator[VerifyAnswer]:
    """One answer for each epoch."""
    for number, epoch in run.epochs.items():
        for level, code, text in _covered(epoch):
            yield VerifyAnswer("samples", level, code, f"{title}{text}", run.name, (number,))
        for level, code, text in _shown(epoch.legs):
            yield VerifyAnswer("samples", level, code, f"{title}{text}", run.name, (number,))


def _shown(legs: list[DataReceipt]) -> Iterator[_Said]:
    """What a receipt has to show beside its samples: bad ones, failed batches, parts that are missing."""
    bad, failed = sum(leg.bad_count for leg in legs), sum(leg.failed_count for leg in legs)
    if bad:
        names = ", ".join(dict.fromkeys(index for leg in legs for _, index in leg.bad[:8]))
        done = "others stand in for them" if any(leg.replaced for leg in legs) else "left out"
        text = f"{counted(bad, 'bad sample')} ({names[:100]}): {done} (on_bad_sample)"
        yield "note", "bad-samples", text
    if failed:
        which = numbers(sorted({number for leg in legs for number in leg.failed}))
        text = f"{counted(failed, 'batch')} raised an error and handed over nothing: {which}"
        yield "note", "failed-batches", text
    for why in sorted({leg.missing for leg in legs if leg.missing is not None}):
        yield "fault", "incomplete", f"a part of the receipt is missing: {why}"


def _covered(epoch: VerifiedEpoch) -> Iterator[_Said]:
    ranks, sums = epoch.ranks, epoch.sums()
    facts = epoch.last.ranks[0].last.facts
    if facts.kind == "iterable":
        batches = ", ".join(str(each.end) for each in epoch.last.ranks[:8])
        text = (
            f"an iterable dataset has no indices: {batches} batches were counted, which samples is not known"
        )
        yield "note", "stream", text
        return
    if len(epoch.counted) == 1:
        twice = _divided_twice(ranks)
        if twice:
            yield "fault", "double-sharding", twice
            return
    for world in epoch.counted:
        same = _same_on_ranks(world.ranks)
        if same:
            yield "fault", "not-divided", same
            return
    unsettled = _unsettled(epoch, facts, None if sums is None else sums[0])
    if unsettled is not None:
        yield ("note", *unsettled)
    elif sums is not None and facts.length is not None:
        yield _judged(epoch, facts, *sums, facts.length)


def _unsettled(epoch: VerifiedEpoch, facts: ReceiptFacts, samples: int | None) -> tuple[str, str] | None:
    """Why the samples of an epoch cannot be compared with the dataset. ``samples``: how many; None where that is open."""
    for world in epoch.counted:
        if world.absent:
            of = f" of {world.size}" if len(epoch.counted) > 1 else ""
            text = f"the receipts of rank {numbers(world.absent)}{of} are not here: not all samples are"
            return "ranks-missing", text
    open_ends = [each for each in epoch.last.ranks if not each.finished]
    if open_ends:
        text = f"the epoch did not end: it was left after {counted(open_ends[0].end, 'batch')}"
        return "unfinished", text
    if not epoch.joined:
        text = "legs on one number of ranks do not end where those on another begin: which samples were handed over is not known"
        return "unknown", text
    if samples is None:
        return "unknown", "legs are missing or overlap: which samples were handed over is not known"
    if not all(leg.told for leg in epoch.legs):
        return "opaque-indices", "the sampler yields objects that have no value to compare"
    if facts.length is None or not all(leg.whole for leg in epoch.legs):
        return "no-numbers", "the indices are no whole numbers below a length: samples are counted only"
    if facts.length > _MOST_SAMPLES:
        text = f"{samples} samples of {facts.length}: there are too many to compare, so they are only counted"
        return "too-many", text
    return None


def _judged(epoch: VerifiedEpoch, facts: ReceiptFacts, samples: int, digest: int, length: int) -> _Said:
    if samples == length and digest == total(_expected(length)[0]):
        return "ok", "complete", f"every one of the {length} samples exactly once{_over(epoch)}"
    if facts.replacement:
        return "note", "replacement", f"{samples} samples were drawn with replacement, out of {length}"
    inner = facts.samplers[-1].rpartition(".")[2] if facts.samplers else ""
    if inner not in _USUAL and facts.sampler_length is not None and samples == facts.sampler_length < length:
        return _part(epoch, f"{samples} samples, as many as {inner} names, out of {length}", length)
    found = _difference(epoch, _expected(length), length)
    counts = f"{samples} samples were handed over and the dataset has {length}"
    if found is None or not found.complete:
        return "fault", "wrong-samples", f"{counts}. Too many differ, or legs overlap: they cannot be named"
    return _named(epoch, facts, found, counts, length)


def _part(epoch: VerifiedEpoch, counts: str, length: int) -> _Said:
    """Say whether a sample came more than once, of a sampler that names only a part of the dataset.

    The sketch tells it where the part is small, or nearly the whole.
    """
    beside = _difference(epoch, _expected(length), length)
    alone = _difference(epoch, sketch.empty(), length)
    absent = ""
    if beside is not None and beside.complete:
        extra, absent = beside.extra, f", and {_samples(beside.missing)} never"
    elif alone is not None and alone.complete:
        extra = sorted(index for index, times in alone.times.items() if times > 1)
    else:
        text = f"{counts}: whether all are different, and which they are, cannot be known from a receipt"
        return "note", "part-unknown", text
    if extra:
        return "fault", "wrong-samples", f"{counts}, but {_samples(extra)} came more than once{absent}"
    return "note", "subset", f"{counts}, each of them once"


def _named(
    epoch: VerifiedEpoch, facts: ReceiptFacts, found: SketchDifference, counts: str, length: int
) -> _Said:
    """Which samples are missing or there more than once, and whether that was to be expected."""
    slack = facts.world_size * max(1, facts.batch_size or 1)
    bad = {index for leg in epoch.legs for _, index in leg.bad}
    missing = [index for index in found.missing if str(index) not in bad]
    extra = found.extra
    parts = []
    level: Level = "ok"
    if extra:
        times = sum(found.times[index] for index in extra)
        if facts.world_size > 1 and times < slack and any(facts.divided_by):
            parts.append(f"padding, so that all ranks have as many: {_samples(extra)} came again")
        else:
            level = "fault"
            parts.append(f"{_samples(extra)} came more than once")
    if missing:
        if (facts.drop_last or _distributed(facts)) and len(missing) < slack:
            parts.append(f"drop_last left out {_samples(missing)}")
        else:
            level = "fault"
            parts.append(f"{_samples(missing)} were never handed over")
    if not parts:
        return (
            "ok",
            "complete",
            f"every one of the {length} samples exactly once, but for bad ones{_over(epoch)}",
        )
    if level == "ok":
        begin = "every sample" if not missing else "every other sample"
        how = "at least once" if extra else "exactly once"
        code = "padded" if extra else "dropped"
        return "ok", code, f"{begin} {how}{_over(epoch)}; {' and '.join(parts)}"
    return "fault", "wrong-samples", f"{counts}: {' and '.join(parts)}"


def _distributed(facts: ReceiptFacts) -> bool:
    """Whether a sampler divides the data, and may leave out a rest smaller than the number of ranks."""
    return any(facts.divided_by)


def _over(epoch: VerifiedEpoch) -> str:
    worlds = [each.size for each in epoch.counted]
    return (
        ""
        if worlds == [1]
        else f" over {', then '.join(map(str, worlds))} rank{'s' if worlds[-1] > 1 else ''}"
    )


def _samples(indices: list[int]) -> str:
    return f"{counted(len(indices), 'sample')} ({numbers(indices)})"


def _difference(epoch: VerifiedEpoch, wanted: Words, length: int) -> SketchDifference | None:
    if not all(each.contiguous for each in epoch.ranks):
        return None
    found: Words = np.add.reduce([leg.sketch for leg in epoch.legs])
    return sketch.difference(found, wanted, length)


@functools.lru_cache(maxsize=4)
def _expected(length: int) -> Words:
    return sketch.of_range(length)


def _divided_twice(ranks: list[RankEpoch]) -> str:
    """Whether each rank got a share of its share (accelerate #4199)."""
    facts, sums = ranks[0].last.facts, [each.sums() for each in ranks]
    world, length = facts.world_size, facts.length
    if world < 2 or not length or None in sums or not all(each.finished for each in ranks):
        return ""
    samples = [n for n, _ in (each for each in sums if each is not None)]
    share, twice = length / world, length / world**2
    slack = max(1, facts.batch_size or 1) + 1
    dividers = [
        f"{name.rpartition('.')[2]} by {count}"
        for name, count in zip(facts.samplers, facts.divided_by, strict=False)
        if count > 1
    ]
    looks = all(abs(n - twice) <= slack for n in samples) and share - twice > slack
    if not looks and not (len(dividers) > 1 and all(n < share - 1 for n in samples)):
        return ""
    how = f" ({' and '.join(dividers)})" if dividers else ""
    return (
        f"double sharding: the data is divided by {world} ranks twice{how}, so each handed over {numbers(sorted(set(samples)))} "
        f"samples, not {share:.0f} of {length}. Divide it once: either give the loader no DistributedSampler, or do not "
        "prepare it"
    )


def _same_on_ranks(ranks: list[RankEpoch]) -> str:
    """Whether several ranks handed over the same samples."""
    by_digest: dict[tuple[int, int], list[int]] = {}
    for each in ranks:
        sums = each.sums()
        if sums is not None and sums[0] and not each.last.facts.replacement:
            by_digest.setdefault(sums, []).append(each.rank)
    for (samples, _), same in by_digest.items():
        if len(same) > 1:
            return (
                f"ranks {numbers(same)} handed over the same {samples} samples: the data is not divided. Give the loader a "
                "DistributedSampler, or stoker.ElasticDistributedSampler"
            )
    return ""
