"""Batches come faster without workers.

What it finds
-------------
The same batches were made in one process and by the loader with its workers, as fast as they came, after a warm-up.
They came faster without workers. Whether that matters depends on the training step. The finding says how long a step
must be for it not to matter. While other processes use the CPUs, it is reported only if no step is long enough.

Why it hurts
------------
A batch from a worker has to be put into shared memory, announced, opened and mapped: with torch's loader about a millisecond
and a descriptor per tensor. When indexing an array makes the whole batch in a tenth of that, workers only add to it, and take
memory and start-up time. Where the training process spends more CPU time on taking a batch than on making it, no training
step is long enough for workers to pay.

Example
-------
```python
DataLoader(TensorDataset(x, y), batch_size=32, num_workers=4)      # 0.1 ms without workers, 1.5 ms with them
```

Fix
---
`num_workers=0`; torch then refuses `prefetch_factor`, `persistent_workers` and `timeout`, so leave them out. For data that
lies in arrays, `__getitems__` (all rows of a batch at once) is faster still. With stoker's loader a hand-over takes a
fraction of torch's.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker._record.finding import Edit, Finding, Gain, counted, duration
from stoker._tools.doctor.check import Check
from stoker._tools.doctor.facts.speed import SpeedFacts
from stoker._tools.doctor.facts.target import LoaderArguments, TargetFacts

_NOTHING_S = 0.001
"""Two times below this are the same to any training step."""
_SHORT_S = 0.005
"""Hardly any training step is shorter than this: what holds only below it is not worth a word."""


def examine(speed: SpeedFacts, target: TargetFacts) -> Iterator[Finding]:
    """Both times, and what the trainer pays either way."""
    loader = target.loader
    if not loader.num_workers or not speed.better_inline or speed.loader_s is None or speed.parent_s is None:
        return
    always, shorter_s = speed.always_inline, speed.loader_s - speed.inline_s
    if not always and (shorter_s < _SHORT_S or speed.disturbed):
        return
    # Without batching the sampler decides what is taken at once: a sample, or a list of them.
    what = (
        f"a batch of {speed.rows}" if loader.batch_size or loader.batch_sampler else "what is taken at once"
    )
    evidence = (
        f"{what} takes {duration(speed.inline_s)} without workers and {duration(speed.loader_s)} with "
        f"{speed.workers}; taking it from a worker costs the training process {duration(speed.parent_s)} of CPU time by itself"
    )
    if always:
        evidence += ", more than making it, so workers cannot help, however long a step is"
    else:
        evidence += (
            f". Behind steps that are longer than {duration(shorter_s)} workers hide more than they cost"
        )
    if speed.loader_s < _NOTHING_S:
        evidence += ". Both are negligible beside most training steps"
    what = "num_workers=0." if target.assumed else _change(loader)
    yield CHECK.finding(
        evidence,
        f"Set {what}" if always else f"If a training step takes less than {duration(shorter_s)}, set {what}",
        severity="moderate" if always and speed.loader_s >= _NOTHING_S else "low",
        edit=Edit("num_workers=0", f"num_workers={loader.num_workers}", loader.site, kind="argument")
        if always and not target.assumed
        else None,
        gain=Gain(
            1 - speed.inline_s / speed.loader_s,
            "batches of both raced here, in a loop that does nothing else",
            at_most=True,
        ),
        where="num_workers",
        numbers={
            "inline_s": speed.inline_s,
            "loader_s": speed.loader_s,
            "parent_s": speed.parent_s,
            "share_s": speed.share_s,
            "workers": speed.workers,
            "batch_tensors": speed.batch_tensors,
            "batch_bytes": speed.batch_bytes,
        },
    )


def _change(loader: LoaderArguments) -> str:
    unwanted = [
        name
        for name, given in (
            ("prefetch_factor", loader.prefetch_factor not in (None, 2)),
            ("persistent_workers", loader.persistent_workers),
            ("timeout", loader.timeout_s > 0),
        )
        if given
    ]
    text = f"num_workers=0 instead of {counted(loader.num_workers, 'worker')}"
    return f"{text}, and leave out {', '.join(unwanted)}." if unwanted else f"{text}."


CHECK = Check(__name__, __doc__, severity="moderate", examine=examine, rows=(40,))
