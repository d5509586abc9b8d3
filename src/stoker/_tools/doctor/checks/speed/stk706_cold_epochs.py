"""Workers start again in every epoch.

What it finds
-------------
A loader with workers and without `persistent_workers=True` whose epochs are short against the time it takes to start the
workers. An epoch is counted from its batches and the seconds of a sample; a start from the start method and what it takes to
send the dataset.

Why it hurts
------------
Every `iter()` starts all workers again: about 30 ms for each forked one, one after the other; under spawn and
forkserver they import torch and the script (seconds), and torch pickles the dataset for each of them in turn. Caches
that workers filled are lost, and files opened on first use are opened again. Short epochs then wait longer than they
work. Also, one worker makes the whole first batch, however many workers there are.

Example
-------
```python
loader = DataLoader(dataset, num_workers=8, multiprocessing_context="spawn")    # 50 batches an epoch
for epoch in range(1000):
    for batch in loader: ...              # 4 s of start, 2 s of data
```

Fix
---
`persistent_workers=True`. Under torch, changes to the dataset then no longer reach the workers (STK504). stoker's loader
sends the dataset once, starts workers side by side, sends them what changes, and lets all of them make the first batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from stoker._record.finding import Edit, Finding, Gain, counted, duration
from stoker._tools.doctor.check import Check, Mark
from stoker._tools.doctor.facts.samples import SampleFacts
from stoker._tools.doctor.facts.scan import ScanFacts
from stoker._tools.doctor.facts.speed import SpeedFacts
from stoker._tools.doctor.facts.target import TargetFacts

_FORK_S = 0.03
_IMPORT_S = 2.5
"""About what a new interpreter takes to import torch; those of one loader do it side by side."""

_LOW, _MODERATE = 0.1, 0.3
"""Shares of an epoch that are spent on starting."""


_FELT_S = 0.5
"""A start that takes less is felt only by those who count epochs in thousands."""


def examine(
    target: TargetFacts, samples: SampleFacts, scan: ScanFacts | None = None, speed: SpeedFacts | None = None
) -> Iterator[Finding]:
    """An estimate, and says so: what counts is whether starting is a good part of an epoch."""
    loader = target.loader
    if target.assumed or loader.persistent_workers or not loader.num_workers:
        return
    if not (loader.batches and samples.sample_s):
        return
    if speed is not None and speed.always_inline:
        return  # STK701 advises to have no workers at all
    collate_s = median(samples.collate_s) if samples.collate_s else 0.0
    batch_s = median(samples.sample_s) * (loader.batch_size or 1) + collate_s
    epoch_s = loader.batches * batch_s / loader.num_workers
    start_s = _start_s(loader.start_method, loader.num_workers, loader.engine, scan)
    share = start_s / (start_s + epoch_s)
    if share < _LOW:
        return
    yield CHECK.finding(
        f"{counted(loader.batches, 'batch', 'batches')} in {counted(loader.num_workers, 'worker')}: about "
        f"{duration(epoch_s)} an epoch, and starting the workers "
        f"({loader.start_method}) takes about {duration(start_s)} at every iter(): {share:.0%} of an epoch (an estimate)",
        "Set persistent_workers=True.",
        severity="moderate" if share > _MODERATE and start_s > _FELT_S else "low",
        edit=Edit("persistent_workers=True", "persistent_workers=False", loader.site, "argument"),
        gain=Gain(
            share,
            "start of the workers against the batches of an epoch, where the loop waits for data",
            at_most=True,
        ),
        numbers={
            "epoch_s": epoch_s,
            "start_s": start_s,
            "batches": loader.batches,
            "workers": loader.num_workers,
        },
    )


def _start_s(method: str, workers: int, engine: str, scan: ScanFacts | None) -> float:
    if method == "fork" or (method == "forkserver" and engine == "stoker"):
        return _FORK_S * workers  # stoker's server stays, with torch and the dataset in it
    sent_s = scan.pickle_s if scan and scan.pickle_s else 0.0
    return _IMPORT_S + sent_s * (1 if engine == "stoker" else workers)


CHECK = Check(
    __name__,
    __doc__,
    severity="moderate",
    examine=examine,
    marks=(Mark(r"[Cc]onsider setting `?persistent_workers=True`?(?! and|>)", weight=1),),
    rows=(37, 38),
)
