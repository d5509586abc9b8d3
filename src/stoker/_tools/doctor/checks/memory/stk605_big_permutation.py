"""A shuffled order of millions of samples is made as a list.

What it finds
-------------
A sampler of torch's that puts the whole order of an epoch into one list at every `iter()`, for more than 5 million samples:
`RandomSampler` (`shuffle=True`), `DistributedSampler`, `SubsetRandomSampler`, `WeightedRandomSampler`.

Why it hurts
------------
The permutation is a tensor of 8 bytes a sample, then a list of Python ints of 40: 48 bytes a sample at its peak, and
about 80 ns. 20 million samples cost 1.6 s at the start of every epoch and 920 MB, of which 770 MB stay until its end,
in every rank; with `DistributedSampler` every rank makes the order of all ranks. In forked workers the list is copied
by and by, too.

Example
-------
```python
loader = DataLoader(clicks, batch_size=4096, shuffle=True)        # 500 million samples: 24 GB and 40 s an epoch
```

Fix
---
A sampler that computes the order as it goes, in constant memory. It works without ranks too, and its state is one number:

```python
loader = DataLoader(clicks, batch_size=4096, sampler=stoker.ElasticDistributedSampler(clicks))
```

20 million samples: the first index after 10 ms, with 1 MB. For draws by weight: its argument `weights`.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker._record.finding import Edit, Finding, duration, size
from stoker._tools.doctor.check import Check
from stoker._tools.doctor.facts.scan import ScanFacts
from stoker._tools.doctor.facts.target import TargetFacts

_MANY = 5_000_000
_PEAK_BYTES, _KEPT_BYTES, _SAMPLE_S = 48, 40, 80e-9
"""Of one sample: measured on torch 2.13, Python 3.11."""

_FELT_S = 3.0
_SHARE = 0.1


def examine(scan: ScanFacts, target: TargetFacts) -> Iterator[Finding]:
    """By how many indices it lists; whose loader it is makes no difference."""
    listed = scan.listed_indices
    if target.assumed or listed is None or listed <= _MANY:
        return
    peak, kept, seconds = listed * _PEAK_BYTES, listed * _KEPT_BYTES, listed * _SAMPLE_S
    room = scan.room_bytes
    severity = "high" if room and peak > room / 2 else "low"
    if severity == "low" and (seconds > _FELT_S or (room and peak > _SHARE * room)):
        severity = "moderate"
    loader = target.loader
    free = "" if room is None else f" of {size(room)} that are free"
    yield CHECK.finding(
        f"{loader.sampler or 'the sampler'} lists {listed:,} indices at every iter(): {size(peak)}{free} and about "
        f"{duration(seconds)} before the first batch, of which {size(kept)} stay until the epoch ends",
        "Use a sampler that computes the order as it goes: sampler=stoker.ElasticDistributedSampler(dataset).",
        severity=severity,
        edit=Edit(
            "sampler=stoker.ElasticDistributedSampler(dataset)",
            "shuffle=True" if loader.shuffle else None,
            loader.site,
            "shown",
        ),
        where=loader.sampler or "sampler",
        numbers={
            "indices": listed,
            "peak_bytes": peak,
            "kept_bytes": kept,
            "seconds": seconds,
            "room_bytes": room,
        },
    )


CHECK = Check(__name__, __doc__, severity="high", examine=examine, rows=(49,))
