"""drop_last, or batching per worker, loses samples.

What it finds
-------------
How many samples of an epoch never arrive, and how many batches are too small. For an indexed dataset: the remainder of length
by `batch_size`. For a stream: the remainder in every worker, from what each of them gave.

Why it hurts
------------
With `drop_last=True` the last batch is thrown away when it is not full. That is little where an epoch has many batches, and
everything where the data is smaller than one batch: the loop runs zero times, without an error. A stream is batched in
each worker by itself, so up to `num_workers` remainders are lost, or come as `num_workers` small batches without `drop_last`.

Example
-------
```python
DataLoader(stream, batch_size=64, num_workers=8, drop_last=True)    # 400 items, 50 in each worker: no batch at all
```

Fix
---
`drop_last=False` for validation and for small data; fewer workers or a smaller batch for a short stream; or batches that the
dataset itself makes, with `batch_size=None`.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker._record.finding import Edit, Finding, counted
from stoker._tools.doctor.check import Check
from stoker._tools.doctor.facts.stream import StreamFacts
from stoker._tools.doctor.facts.target import TargetFacts

_SHARE = 0.05
_MANY_SMALL = 0.1
"""Of the batches: fewer that are small, and not of one sample, harm nobody."""


def examine(target: TargetFacts, stream: StreamFacts | None = None) -> Iterator[Finding]:
    """An indexed dataset by arithmetic; a stream from what its workers gave."""
    size = target.loader.batch_size
    if size is None or size < 2 or target.assumed:
        return
    if not target.stream:
        if target.loader.drop_last and target.loader.samples:
            yield from _indexed(target, target.loader.samples, size)
    elif stream is not None and target.loader.num_workers:
        yield from _streamed(target, stream, size)


def _indexed(target: TargetFacts, samples: int, size: int) -> Iterator[Finding]:
    lost = samples % size
    numbers = {"samples": samples, "lost": lost, "batches": samples // size, "batch_size": size}
    if samples < size:
        yield CHECK.finding(
            f"{counted(samples, 'sample')} make no batch of {size}: with drop_last=True the loader gives no batch at all",
            "Set drop_last=False, or take a smaller batch_size.",
            severity="high",
            edit=_keep(target),
            numbers=numbers,
        )
    elif lost > _SHARE * samples or (lost and not target.loader.shuffle and not target.loader.replicas):
        always = "" if target.loader.shuffle else ", the same ones in every epoch"
        yield CHECK.finding(
            f"drop_last=True leaves out {lost} of {samples} samples ({lost / samples:.1%}){always}",
            "Set drop_last=False, or a batch_size that leaves a smaller remainder.",
            severity="moderate" if lost > _SHARE * samples else "low",
            edit=_keep(target),
            numbers=numbers,
        )


def _streamed(target: TargetFacts, stream: StreamFacts, size: int) -> Iterator[Finding]:
    if not stream.ended:
        if target.loader.drop_last and stream.declared:
            yield from _expected(target, stream.declared, len(stream.workers), size)
        return
    each = [reading.items for reading in stream.workers]
    full, partial = sum(items // size for items in each), [items % size for items in each if items % size]
    lost = sum(partial)
    numbers = {
        "items": sum(each),
        "batches": full if target.loader.drop_last else full + len(partial),
        "lost": lost if target.loader.drop_last else 0,
        "small_batches": 0 if target.loader.drop_last else len(partial),
        "workers": len(each),
        "batch_size": size,
    }
    gave = f"{counted(len(each), 'worker')} gave {' + '.join(map(str, each))} items"
    if target.loader.drop_last and lost:
        share = lost / sum(each)
        nothing = "no batch at all" if full == 0 else counted(full, "batch", "batches")
        yield CHECK.finding(
            f"{gave}: in batches of {size} with drop_last=True that is {nothing}, and {lost} items ({share:.0%}) are lost; "
            f"one worker would lose {sum(each) % size}",
            "Set drop_last=False, use fewer workers, or a smaller batch_size.",
            severity="high" if full == 0 else "moderate" if share > _SHARE else "low",
            edit=_keep(target),
            numbers=numbers,
        )
    elif len(partial) > 1 and (min(partial) == 1 or len(partial) > _MANY_SMALL * (full + len(partial))):
        yield CHECK.finding(
            f"{gave}: {len(partial)} batches are smaller than {size} (the smallest has {min(partial)}); one worker "
            f"would give {1 if sum(each) % size else 'none'}",
            "Make sure that small batches do no harm: batch normalisation fails on a batch of 1.",
            severity="low",
            numbers=numbers | {"smallest": min(partial)},
        )


def _expected(target: TargetFacts, declared: int, workers: int, size: int) -> Iterator[Finding]:
    """The stream was not read to its end, but says how long it is."""
    most = workers * (size - 1)
    nothing = declared // workers < size
    if nothing or most > _SHARE * declared:
        yield CHECK.finding(
            f"len(dataset) is {declared}, about {declared // workers} items for each of {workers} workers: in batches of {size} "
            + ("none is full, and everything is lost" if nothing else f"up to {most} items are lost"),
            "Set drop_last=False, use fewer workers, or a smaller batch_size.",
            severity="high" if nothing else "low",
            edit=_keep(target),
            numbers={
                "items": declared,
                "lost": declared if nothing else most,
                "workers": workers,
                "batch_size": size,
            },
        )


def _keep(target: TargetFacts) -> Edit:
    return Edit("drop_last=False", "drop_last=True", target.loader.site, "argument")


CHECK = Check(__name__, __doc__, severity="high", examine=examine, rows=(15,))
