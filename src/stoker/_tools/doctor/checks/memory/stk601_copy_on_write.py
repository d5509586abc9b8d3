"""Workers copy the dataset's Python objects as they read them.

What it finds
-------------
A forked worker fetched samples from all over the dataset. Pages that it shared with its parent were copied, throughout
and not only at the start. These pages belong to the objects of an attribute: a list of paths, a dict of rows. From the
growth, the size of the attribute and the loader's arguments, the doctor computes the memory of an epoch and the step at
which memory ends.

Why it hurts
------------
A fork shares all memory until a process writes to it. Reading a Python object writes its reference count, so the kernel
copies the page it lies in: 4096 bytes for a number. After an epoch every worker has a copy of the list, so eight
workers have eight copies. RAM climbs for hours, then the kernel kills a worker or the trainer. Arrays and tensors are
not copied: their elements have no counts. Under spawn and forkserver every worker has its copy from the start.

Example
-------
```python
class Pictures(Dataset):
    def __init__(self, rows):
        self.rows = [(row.path, row.label) for row in rows]      # 40 million tuples: 6 GiB, in every worker by and by

    def __getitem__(self, index):
        path, label = self.rows[index]
```

Fix
---
`dataset = stoker.share(dataset)`: lists, dicts and tables in it become one sealed copy that all workers read, with
torch's loader as with stoker's. `stoker.share(dataset, report=True)` says what it would do. By hand: keep numbers in
one array, and paths in an `np.array(paths, dtype=np.bytes_)` or an Arrow table. Fewer workers only delay the end.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from stoker._record.finding import Edit, Finding, counted, size
from stoker._tools.doctor.check import Check, Mark
from stoker._tools.doctor.facts.growth import Container, GrowthFacts, MemoryForecast, MemoryTrend, forecast
from stoker._tools.doctor.facts.target import LoaderArguments, TargetFacts
from stoker._tools.doctor.wording import ERROR_LINE

_EDGE_BYTES = 4 * 4096
"""Pages that two batches in a row have in common: objects of different sizes lie in pages of their own."""
_LEAST_EXPLAINED = 0.3
"""Attributes are named when so much of what was copied are their pages."""
_LEAST_PART = 0.1
"""The part of it from which on an attribute is one of them."""
_DONE = 0.5
"""Share of its pages from which on copying need not be steady to be believed: little is left to copy."""
_WORTH, _WORTH_BYTES = 0.02, 64 << 20
"""What all workers together copy in an epoch, below which nobody needs to care: of what can still be taken, or at all."""


def examine(growth: GrowthFacts, target: TargetFacts) -> Iterator[Finding]:
    """The attribute whose pages are being copied, and where that leads."""
    loader = target.loader
    main = _together(growth)
    if not loader.num_workers or main is None:
        return
    done = main.explains * growth.copied_bytes / main.object_bytes
    if not growth.copies_steadily and done <= _DONE:
        return
    available = None if growth.available_bytes is None else growth.available_bytes // growth.ranks
    ahead = forecast(
        _course(growth, main, target),
        workers=loader.num_workers,
        batch=loader.batch_size or 1,
        samples=loader.samples if loader.samples is not None else target.length,
        persistent=loader.persistent_workers,
        available=available,
    )
    severity = _severity(ahead, available)
    if severity:
        yield CHECK.finding(
            _evidence(growth, main, ahead, loader, available),
            f"Wrap it: dataset = stoker.share(dataset). All workers then read one copy of {main.path}, with torch's loader too.",
            severity=severity,
            edit=Edit("stoker.share(dataset)", "dataset", loader.site, kind="share"),
            where=growth.containers[0].path,
            numbers={
                "slope_bytes_per_sample": round(growth.copied_slope_bytes),
                "object_bytes": main.object_bytes,
                "items": main.items,
                "explained": round(main.explains, 2),
                "worker_bytes": ahead.worker_bytes,
                "total_bytes": ahead.total_bytes,
                "available_bytes": available,
                "ends_at_step": ahead.ends_at,
                "steps": ahead.steps,
                "workers": loader.num_workers,
                "ranks": growth.ranks,
            },
        )


def _together(growth: GrowthFacts) -> Container | None:
    """The containers that are copied, as one; None when they are not what is copied."""
    taken = [each for each in growth.containers if each.explains >= _LEAST_PART]
    explained = sum(each.explains for each in taken)
    if explained < _LEAST_EXPLAINED:
        return None
    names = [each.path for each in taken]
    return Container(
        path=" and ".join(names) if len(names) < 3 else f"{names[0]} and {len(names) - 1} others",
        kind=taken[0].kind,
        items=taken[0].items,
        # More than all is explained when several have the same objects.
        object_bytes=max(1, int(sum(each.object_bytes for each in taken) / max(1.0, explained))),
        copied=taken[0].copied,
        explains=min(1.0, explained),
    )


def _course(growth: GrowthFacts, main: Container, target: TargetFacts) -> MemoryTrend:
    """How copying goes on in this loader's order. The probe's was random."""
    loader = target.loader
    most = main.object_bytes * 1.0
    if loader.start_method != "fork":
        return MemoryTrend(math.inf, most, random=False)
    if not loader.shuffle and not target.assumed and not target.stream and target.length:
        # In order, a worker reads every so many batches: their pages, and what shares a page with them.
        batch_bytes = most / target.length * (loader.batch_size or 1)
        share = min(1.0, (batch_bytes + _EDGE_BYTES) / (loader.num_workers * batch_bytes))
        return MemoryTrend(most * share * loader.num_workers / target.length, most * share, random=False)
    done = max(1e-9, min(0.99, main.explains * growth.copied_bytes / most))
    # In pages per page. Some pages were touched again, so the slope was steeper at the beginning.
    met = -math.log1p(-done)
    slope = main.explains * growth.copied_slope_bytes * met / done
    if done > _DONE:
        slope = max(slope, met * most / (growth.warm_up + growth.samples))
    return MemoryTrend(slope, most)


def _severity(ahead: MemoryForecast, available: int | None) -> str:
    """ "" when it does not matter: everything fits, and easily."""
    if ahead.ends_at is not None or (available and ahead.total_bytes > available / 2):
        return "high"
    if ahead.total_bytes < min(_WORTH_BYTES, _WORTH * (available or 0)):
        return ""
    return "moderate" if available and ahead.total_bytes > available / 10 else "low"


def _evidence(
    growth: GrowthFacts,
    main: Container,
    ahead: MemoryForecast,
    loader: LoaderArguments,
    available: int | None,
) -> str:
    text = (
        f"a worker copied {size(growth.copied_slope_bytes)} a sample over {growth.samples} samples, "
        f"{main.explains:.0%} of it pages of {main.path} ({main.kind} of {main.items:,} items, {size(main.object_bytes)} "
        f"of Python objects): {size(ahead.worker_bytes)} at the end of an epoch"
    )
    text += f", {size(ahead.total_bytes)} in {counted(loader.num_workers, 'worker')}"
    if loader.start_method != "fork":
        text += f", from the start under {loader.start_method}"
    if growth.ranks > 1:
        text += f" of each of {growth.ranks} local ranks"
    if available is None:
        return text
    text += f", where {size(available)} can still be taken"
    if ahead.ends_at is not None:
        of = f" of {ahead.steps:,}" if ahead.steps and ahead.ends_at <= ahead.steps else ""
        epoch = f" (epoch {math.ceil(ahead.ends_at / ahead.steps)})" if ahead.steps and not of else ""
        text += f": memory ends at step ~{_rounded(ahead.ends_at):,}{of}{epoch}"
    return text


def _rounded(step: int) -> int:
    """To three digits: it is a forecast."""
    unit: int = 10 ** max(0, len(str(step)) - 3)
    return max(1, int(round(step / unit) * unit))


_DEVICE = r"(?i)(?<!not[ ]on[ ])(?<!not[ ]using[ ])\b(?:gpu|cuda|vram|loss)\b"
"""It is about the device's memory, unless people say that it is not."""

CHECK = Check(
    __name__,
    __doc__,
    severity="high",
    examine=examine,
    marks=(
        Mark(
            r"(?i)\b(?:memory|ram)\b.{0,60}\b(?:grows|climbs|increas\w+|leak\w*)\b.{0,80}\b(?:epoch|worker)",
            also=(r"(?i)data ?loader|num_workers|\bworkers?\b",),
            never=(_DEVICE,),
            weight=5,
        ),
        Mark(
            r"(?i)\bmemory leak|\b(?:memory|ram)\b.{0,60}\b(?:grow\w*|increas\w+|climb\w*|leak\w*|decreas\w+)\b|"
            r"\bincreas\w+ (?:of )?(?:cpu |ram |main )?(?:memory|ram)\b",
            also=(r"(?i)\bdata ?loader|\bnum_workers\b",),
            never=(_DEVICE, ERROR_LINE),
            weight=5,
        ),
        Mark(
            r"(?i)\bcopy-on-(?:write|access|read)\b",
            also=(
                r"(?i)\bdata ?loa?der|\bnum_workers\b|\bworkers?\b|\bdatasets?\b",
                r"(?i)\b(?:memory|ram)\b",
            ),
            never=(ERROR_LINE, r"(?i)\b(?:redis|postgres\w*|btrfs|zfs|qcow2?)\b"),
            weight=5,
        ),
    ),
    rows=(7,),
)
