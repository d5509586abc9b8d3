"""Several loaders keep their workers at the same time.

What it finds
-------------
Two or more loaders, such as for training and validation, with `persistent_workers=True`: how many processes stay, and
how many bytes of batches they may hold. Both loaders are seen when the target gives both, or when the script makes
both.

Why it hurts
------------
Persistent workers stay when their epoch is over, with their copy of the dataset, their imports and the batches they
made ahead. While one loader works, the other's workers only occupy memory. If one set fills the machine, the second
triggers the OOM killer.

Example
-------
```python
train = DataLoader(train_set, num_workers=8, persistent_workers=True)
valid = DataLoader(valid_set, num_workers=8, persistent_workers=True)    # 16 processes, 8 of them idle at any time
```

Fix
---
`persistent_workers=False` for the loader that is used once an epoch or less, or fewer workers for it: 2 are often enough for
validation, which has no augmentation.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker._record.finding import Edit, Finding, counted
from stoker._tools.doctor.check import Check
from stoker._tools.doctor.facts.host.machine import MachineFacts
from stoker._tools.doctor.facts.samples import SampleFacts
from stoker._tools.doctor.facts.scan import ScanFacts
from stoker._tools.doctor.facts.target import LoaderArguments, TargetFacts
from stoker._tools.doctor.sources.script import LoaderCall, read

_SHARE = 0.25
"""Of the memory that is available: more is worth changing."""

_TRIFLE = 0.01
"""Of the same: less is nothing to change for."""

_FORKED_BYTES, _STARTED_BYTES = 16 << 20, 150 << 20
"""What an idle worker holds for itself beside the dataset, once it has made some samples: a forked one, and one that had to import
torch by itself."""


def examine(
    target: TargetFacts,
    machine: MachineFacts | None = None,
    samples: SampleFacts | None = None,
    scan: ScanFacts | None = None,
) -> Iterator[Finding]:
    """By the loaders that were given; of one loader alone, by the script that made it."""
    kept = [each for each in (target.loader, *target.others) if each.persistent_workers and each.num_workers]
    if target.assumed or not kept:
        return
    if len(kept) > 1:
        yield _found(
            [each.num_workers for each in kept],
            _worker_bytes(kept[0], scan),
            _ahead(kept, samples),
            kept[-1].site,
            machine,
        )
        return
    script = read(target.source)
    made = [each for each in script.loaders if each.persistent] if script else []
    workers = [_workers(each, kept[0].num_workers) for each in made]
    if len(made) > 1 and all(workers):
        site = f"{target.file}:{made[-1].line}" if target.file else None
        yield _found(workers, _worker_bytes(kept[0], scan), 0, site, machine, script=True)


def _found(
    workers: list[int],
    worker_bytes: int,
    ahead_bytes: int,
    site: str | None,
    machine: MachineFacts | None,
    *,
    script: bool = False,
) -> Finding:
    """``script``: the loaders were read in the target's file, and may not all be made in one run."""
    idle = sum(workers) - max(workers)
    taken = idle * worker_bytes + ahead_bytes
    available = machine.available_bytes if machine else None
    scarce = available is not None and taken > _SHARE * available
    room = "" if available is None else f", of {available >> 20} MiB that are available"
    trifling = available is not None and taken < _TRIFLE * available
    sums = f"{' + '.join(map(str, workers))} = {sum(workers)} processes"
    return CHECK.finding(
        (
            f"the target's file makes {counted(len(workers), 'loader')} with persistent workers: in one run they keep {sums}; "
            if script
            else f"{counted(len(workers), 'loader')} with persistent workers keep {sums}; "
        )
        + f"of these at least {idle} idle at any time and hold about {taken >> 20} MiB{room} (an estimate)",
        "Set persistent_workers=False for the loader that is used less, or give it fewer workers.",
        severity="moderate" if scarce else "none" if trifling else "low",
        edit=Edit("persistent_workers=False", "persistent_workers=True", site, "argument"),
        numbers={"workers": sum(workers), "idle": idle, "idle_bytes": taken, "available_bytes": available},
    )


def _worker_bytes(loader: LoaderArguments, scan: ScanFacts | None) -> int:
    """A forked worker copies the Python objects it reads; one that is sent the dataset has all of it for itself."""
    if loader.start_method == "fork":
        return _FORKED_BYTES + (scan.copied_bytes if scan else 0)
    return _STARTED_BYTES + (scan.nbytes if scan and loader.engine == "torch" else 0)


def _ahead(kept: list[LoaderArguments], samples: SampleFacts | None) -> int:
    """Bytes of batches that all but the largest loader may have made ahead."""
    if samples is None:
        return 0
    batches = sorted((each.prefetch_factor or 2) * each.num_workers for each in kept)
    return sum(batches[:-1]) * samples.batch_bytes


def _workers(made: LoaderCall, otherwise: int) -> int:
    """As written; a name of a variable stands for what the loader at hand has."""
    text = made.keywords.get("num_workers", "0")
    return int(text) if text.isdigit() else otherwise


CHECK = Check(__name__, __doc__, severity="moderate", examine=examine)
