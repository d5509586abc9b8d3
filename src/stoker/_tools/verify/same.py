"""Are two runs the same, and if not, from which batch on?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from stoker._tools.verify.answer import Level, VerifyAnswer, counted
from stoker._tools.verify.epochs import RankEpoch, VerifiedEpoch
from stoker._tools.verify.runs import VerifiedLoader, VerifiedRun


def compare_runs(loader: VerifiedLoader) -> Iterator[VerifyAnswer]:
    """Compare each further run with the first one."""
    first, *others = loader.runs
    for place, other in enumerate(others, 2):
        names = f"run {place} is" if len(others) > 1 else "the two runs are"
        for level, code, text, epochs in _compared(first, other):
            yield VerifyAnswer("runs", level, code, text.format(runs=names, run=place), loader.name, epochs)


def _compared(one: VerifiedRun, two: VerifiedRun) -> Iterator[tuple[Level, str, str, tuple[int, ...]]]:
    another = _another_dataset(one, two)
    if another:
        yield "fault", "another-dataset", another, ()
        return
    if one.receipts[0].facts.identity != two.receipts[0].facts.identity:
        text = "the class, attributes or code of the dataset are not the same in run {run}; its length is"
        yield "note", "dataset-changed", text, ()
    epochs_one, epochs_two = one.epochs, two.epochs
    for epoch in sorted(epochs_one.keys() & epochs_two.keys()):
        a, b = epochs_one[epoch], epochs_two[epoch]
        if _layout(a) != _layout(b):
            yield (*_other_ranks(a, b), (epoch,))
            continue
        found = [_rank_compared(*each) for each in zip(a.ranks, b.ranks, strict=True)]
        worst = next((each for each in found if each[0] == "fault"), None)
        yield (*(worst or next((each for each in found if each[0] == "note"), found[0])), (epoch,))
    only = sorted(epochs_one.keys() ^ epochs_two.keys())
    if only:
        yield "note", "epochs-missing", "only one of the runs has this epoch", tuple(only)


def _another_dataset(one: VerifiedRun, two: VerifiedRun) -> str:
    a, b = one.receipts[0].facts, two.receipts[0].facts
    if (a.dataset, a.length, a.kind) == (b.dataset, b.length, b.kind):
        return ""
    return (
        f"the receipts are of different datasets: {_dataset(a.dataset, a.length)}, and {_dataset(b.dataset, b.length)} "
        "in run {run}"
    )


def _dataset(name: str, length: int | None) -> str:
    name = name.rpartition(".")[2].replace("{", "{{").replace("}", "}}")  # the text is a template
    return f"{name} " + ("without a length" if length is None else f"of {length} samples")


def _layout(epoch: VerifiedEpoch) -> list[tuple[int, int, list[int]]]:
    """Which ranks handed over an epoch, and from which batch on."""
    return [(world.size, world.begin, [each.rank for each in world.ranks]) for world in epoch.counted]


def _other_ranks(one: VerifiedEpoch, two: VerifiedEpoch) -> tuple[Level, str, str]:
    worlds = [", then ".join(str(each.size) for each in epoch.counted) for epoch in (one, two)]
    sums = [epoch.sums() for epoch in (one, two)]
    if None in sums:
        return "note", "other-ranks", f"the runs have {worlds[0]} and {worlds[1]} ranks, and not all are here"
    if sums[0] == sums[1]:
        text = f"{{runs}} of {worlds[0]} and {worlds[1]} ranks: the same samples in all, divided otherwise"
        return "note", "same-samples", text
    text = f"the runs have {worlds[0]} and {worlds[1]} ranks, and did not hand over the same samples in all"
    return "fault", "different-samples", text


def _rank_compared(one: RankEpoch, two: RankEpoch) -> tuple[Level, str, str]:
    where = f" on rank {one.rank}" if one.last.facts.world_size > 1 else ""
    if one.last.facts.kind == "iterable":
        return _streams_compared(one, two, where)
    grain = max(one.grain, two.grain)
    a, b = one.entries(grain), two.entries(grain)
    shared = min(len(a), len(b))
    differs = np.flatnonzero(a[:shared] != b[:shared])
    if len(differs):
        at = int(differs[0])
        batch = f"batch {at}" if grain == 1 else f"a batch among {at * grain} to {at * grain + grain - 1}"
        text = f"{{runs}} different from {batch} on{where}"
        if at == 0 and one.sums() == two.sums() is not None:
            text += ": the same samples in another order"
        return "fault", "different", text
    if one.end != two.end or len(a) != len(b):
        if one.end and two.end:
            text = f"the same up to batch {min(one.end, two.end) - 1}{where}; there are {one.end} and {two.end} batches"
        else:
            empty, other = ("1", "{run}") if two.end else ("{run}", "1")
            text = f"run {empty} has no batches{where}, and run {other} has {max(one.end, two.end)}"
        return ("fault" if one.finished and two.finished else "note"), "different-length", text
    if one.last.seed != two.last.seed:
        text = (
            "the same samples in the same order, but other random numbers in __getitem__: the base seeds differ. "
            "Call torch.manual_seed() before iter(loader), or give it generator="
        )
        return "fault", "different-seed", text
    if not (one.in_order and two.in_order) and [leg.order for leg in one.legs] != [
        leg.order for leg in two.legs
    ]:
        return "note", "other-order", "the same batches, handed over in another order (in_order=False)"
    return (
        "ok",
        "same",
        f"{{runs}} the same: {counted(one.end, 'batch')}{where and ' on each rank'}, and the seed",
    )


def _streams_compared(one: RankEpoch, two: RankEpoch, where: str) -> tuple[Level, str, str]:
    a = dict(pair for leg in one.legs for pair in leg.contents)
    b = dict(pair for leg in two.legs for pair in leg.contents)
    differs = sorted(number for number in a.keys() & b.keys() if a[number] != b[number])
    if differs:
        return "fault", "different", f"{{runs}} different from batch {differs[0]} on, or before{where}"
    if one.end != two.end:
        text = f"an iterable dataset, and the runs have {one.end} and {two.end} batches{where}"
        return ("fault" if one.finished and two.finished else "note"), "different-length", text
    text = (
        f"an iterable dataset has no indices: {counted(one.end, 'batch')} in both runs, and the first "
        f"{len(a.keys() & b.keys())} of them have the same content"
    )
    return "note", "stream", text
