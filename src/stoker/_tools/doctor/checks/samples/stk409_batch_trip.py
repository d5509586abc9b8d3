"""A batch does not arrive from a worker of torch's loader.

What it finds
-------------
Two batches were sent through torch's own loader with one worker, under the loader's start method. They did not arrive
as they do without workers: an error, another structure, a worker that hangs, or a batch that was lost on the way.

Why it hurts
------------
What works with `num_workers=0` fails or hangs with 1. A lost batch is the worst case: the worker failed in a background
thread and waits for its next task, while the training loop waits forever.

Example
-------
```python
def __getitem__(self, index):
    if torch.utils.data.get_worker_info() is None:
        return self.whole[index]
    return self.queue.get()            # nobody fills it in a worker
```

Fix
---
The finding has the error, or where the worker stands. Look for what is different in a worker: a copy of the dataset, no
`__main__`, code that asks `get_worker_info()`, handles and threads that do not survive a fork. `stoker doctor --bisect`
tries one suspect at a time.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker._record.finding import Finding, duration
from stoker._tools.doctor.check import Check
from stoker._tools.doctor.facts.round_trip import RoundTripFacts, StartMethodTrip
from stoker._tools.doctor.facts.samples import SampleFacts, innermost
from stoker._tools.doctor.facts.scan import ScanFacts
from stoker._tools.doctor.facts.stream import StreamFacts
from stoker._tools.doctor.facts.target import TargetFacts

_MANY = 200
"""Tensors of the dataset, from which on they are what descriptors went to: STK105 counts them."""


def examine(
    round_trip: RoundTripFacts,
    target: TargetFacts,
    samples: SampleFacts | None = None,
    stream: StreamFacts | None = None,
    scan: ScanFacts | None = None,
) -> Iterator[Finding]:
    """What was tried with a worker and has no check of its own: STK101, STK102 and STK105 have datasets, STK404 and STK509
    samples, STK406 batches."""
    for trip in round_trip.trips:
        if not trip.tried or trip.outcome == "arrived" or _explained(trip, samples, stream, scan):
            continue
        if target.loader.engine == "stoker" and trip.outcome in ("lost", "changed"):
            continue
        yield CHECK.finding(
            _description(trip),
            "Compare with num_workers=0: stoker doctor --bisect does, and narrows it down.",
            severity="moderate" if trip.outcome == "changed" else "high",
            where=f"multiprocessing_context={trip.start_method!r}",
            numbers={"outcome": trip.outcome, "seconds": round(trip.seconds, 2), "rows": round_trip.rows},
        )


def _explained(
    trip: StartMethodTrip, samples: SampleFacts | None, stream: StreamFacts | None, scan: ScanFacts | None
) -> bool:
    if trip.outcome == "lost" and samples is not None and samples.unsendable:
        return True
    if trip.outcome != "failed":
        return False
    # What a sample raises without workers, it raises in one as well.
    raised = {each.kind for each in samples.failures} if samples is not None else set()
    if stream is not None and stream.broken is not None:
        raised.add(stream.broken.kind)
    if any(f"Caught {kind} in DataLoader worker" in trip.text for kind in raised):
        return True
    if (
        "requires grad" in trip.text
        and samples is not None
        and any(leaf.requires_grad for leaf in samples.leaves)
    ):
        return True
    many = scan is not None and scan.storages > _MANY
    return "pickle" in trip.text or (many and "Too many open files" in trip.text)


def _description(trip: StartMethodTrip) -> str:
    method = trip.start_method
    if trip.outcome == "failed":
        return f"with one worker ({method}) the first batches failed: {trip.text}"
    if trip.outcome == "changed":
        return f"with one worker ({method}) a batch is not what it is without: {trip.text}"
    if trip.outcome == "lost":
        said = f"; the worker printed: {trip.text}" if trip.text else ""
        return f"with one worker ({method}) no batch came within {duration(trip.seconds)}, and the worker is idle{said}"
    return f"with one worker ({method}) no batch came within {duration(trip.seconds)}; the worker hangs in {innermost(trip.stack)}"


CHECK = Check(
    __name__,
    __doc__,
    severity="high",
    prevented="Results travel through memory of the loader's own and are packed where errors can be raised: no batch is lost.",
    examine=examine,
    rows=(2,),
)
