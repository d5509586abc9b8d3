"""Do the receipts of all ranks cover every sample exactly once?"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np

from stoker._receipt import sketch
from stoker._receipt.data_receipt import ReceiptFacts
from stoker._receipt.mixing import MASK, Words, total
from stoker._receipt.sketch import SketchDifference
from stoker._tools.verify.answer import Level, VerifyAnswer, counted, numbers
from stoker._tools.verify.runs import RankEpoch, VerifiedRun

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
    for epoch, ranks in run.epochs.items():
        for level, code, text in _covered(ranks):
            yield VerifyAnswer("samples", level, code, f"{title}{text}", run.name, (epoch,))
        yield from _shown(run, epoch, ranks, title)


def _shown(run: VerifiedRun, epoch: int, ranks: list[RankEpoch], title: str) -> Iterator[VerifyAnswer]:
    """What a receipt has to show beside its samples: bad ones, failed batches, parts that are missing."""
    legs = [leg for each in ranks for leg in each.legs]
    bad, failed = sum(leg.bad_count for leg in legs), sum(leg.failed_count for leg in legs)
    if bad:
        names = ", ".join(dict.fromkeys(index for leg in legs for _, index in leg.bad[:8]))
        done = "others stand in for them" if any(leg.replaced for leg in legs) else "left out"
        text = f"{title}{counted(bad, 'bad sample')} ({names[:100]}): {done} (on_bad_sample)"
        yield VerifyAnswer("samples", "note", "bad-samples", text, run.name, (epoch,))
    if failed:
        which = numbers(sorted({number for leg in legs for number in leg.failed}))
        text = f"{title}{counted(failed, 'batch')} raised an error and handed over nothing: {which}"
        yield VerifyAnswer("samples", "note", "failed-batches", text, run.name, (epoch,))
    for why in sorted({leg.missing for leg in legs if leg.missing is not None}):
        text = f"{title}a part of the receipt is missing: {why}"
        yield VerifyAnswer("samples", "fault", "incomplete", text, run.name, (epoch,))


def _covered(ranks: list[RankEpoch]) -> Iterator[_Said]:
    facts = ranks[0].last.facts
    world = facts.world_size
    sums = [each.sums() for each in ranks]
    if facts.kind == "iterable":
        batches = ", ".join(str(each.end) for each in ranks[:8])
        text = (
            f"an iterable dataset has no indices: {batches} batches were counted, which samples is not known"
        )
        yield "note", "stream", text
        return
    twice = _divided_twice(ranks, sums)
    if twice:
        yield "fault", "double-sharding", twice
        return
    same = _same_on_ranks(ranks)
    if same:
        yield "fault", "not-divided", same
        return
    absent = sorted(set(range(world)) - {each.rank for each in ranks})
    if absent:
        yield (
            "note",
            "ranks-missing",
            f"the receipts of rank {numbers(absent)} are not here: not all samples are",
        )
        return
    open_ends = [each for each in ranks if not each.finished]
    if open_ends:
        text = f"the epoch did not end: it was left after {counted(open_ends[0].end, 'batch')}"
        yield "note", "unfinished", text
        return
    if None in sums:
        yield "note", "unknown", "legs are missing or overlap: which samples were handed over is not known"
        return
    if not all(leg.told for each in ranks for leg in each.legs):
        yield "note", "opaque-indices", "the sampler yields objects that have no value to compare"
        return
    if facts.length is None or not all(leg.whole for each in ranks for leg in each.legs):
        yield (
            "note",
            "no-numbers",
            "the indices are no whole numbers below a length: samples are counted only",
        )
        return
    known = [each for each in sums if each is not None]
    if facts.length > _MOST_SAMPLES:
        text = f"{sum(n for n, _ in known)} samples of {facts.length}: there are too many to compare, so they are only counted"
        yield "note", "too-many", text
        return
    yield _judged(
        ranks, facts, sum(n for n, _ in known), sum(digest for _, digest in known) & MASK, facts.length
    )


def _judged(ranks: list[RankEpoch], facts: ReceiptFacts, samples: int, digest: int, length: int) -> _Said:
    if samples == length and digest == total(_expected(length)[0]):
        return "ok", "complete", f"every one of the {length} samples exactly once{_over(ranks)}"
    if facts.replacement:
        return "note", "replacement", f"{samples} samples were drawn with replacement, out of {length}"
    inner = facts.samplers[-1].rpartition(".")[2] if facts.samplers else ""
    if inner not in _USUAL and facts.sampler_length is not None and samples == facts.sampler_length < length:
        return "note", "subset", f"{samples} samples, as many as {inner} names, out of {length}"
    found = _difference(ranks, length)
    counts = f"{samples} samples were handed over and the dataset has {length}"
    if found is None or not found.complete:
        return "fault", "wrong-samples", f"{counts}. Too many differ, or legs overlap: they cannot be named"
    return _named(ranks, facts, found, counts, length)


def _named(
    ranks: list[RankEpoch], facts: ReceiptFacts, found: SketchDifference, counts: str, length: int
) -> _Said:
    """Which samples are missing or there more than once, and whether that was to be expected."""
    slack = facts.world_size * max(1, facts.batch_size or 1)
    bad = {index for each in ranks for leg in each.legs for _, index in leg.bad}
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
            f"every one of the {length} samples exactly once, but for bad ones{_over(ranks)}",
        )
    if level == "ok":
        begin = "every sample" if not missing else "every other sample"
        how = "at least once" if extra else "exactly once"
        code = "padded" if extra else "dropped"
        return "ok", code, f"{begin} {how}{_over(ranks)}; {' and '.join(parts)}"
    return "fault", "wrong-samples", f"{counts}: {' and '.join(parts)}"


def _distributed(facts: ReceiptFacts) -> bool:
    """Whether a sampler divides the data, and may leave out a rest smaller than the number of ranks."""
    return any(facts.divided_by)


def _over(ranks: list[RankEpoch]) -> str:
    return f" over {len(ranks)} ranks" if len(ranks) > 1 else ""


def _samples(indices: list[int]) -> str:
    return f"{counted(len(indices), 'sample')} ({numbers(indices)})"


def _difference(ranks: list[RankEpoch], length: int) -> SketchDifference | None:
    legs = [leg for each in ranks for leg in each.legs]
    if not all(each.contiguous for each in ranks):
        return None
    found: Words = np.add.reduce([leg.sketch for leg in legs])
    return sketch.difference(found, _expected(length), length)


@functools.lru_cache(maxsize=4)
def _expected(length: int) -> Words:
    return sketch.of_range(length)


def _divided_twice(ranks: list[RankEpoch], sums: list[tuple[int, int] | None]) -> str:
    """Whether each rank got a share of its share (accelerate #4199)."""
    facts = ranks[0].last.facts
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
