"""The dataset holds threads or locks that a fork breaks.

What it finds
-------------
Running threads, pools and executors whose threads were started, locked locks, and queues that such threads serve, on
the dataset or in what it holds. Each is named by path. A pool that was made and not used yet is fine, and so is a lock
that nobody holds while no other Python thread runs. If workers are spawned, see STK101.

Why it hurts
------------
A fork copies one thread. In the worker the others are gone, but the objects do not know it: an executor hands its work
to threads that do not exist, and the first `result()` waits forever. A lock that another thread held is never released.
The loader hangs at the first batch, without a message.

Example
-------
```python
class Remote(Dataset):
    def __init__(self, urls):
        self.pool = ThreadPoolExecutor(8)
        self.index = list(self.pool.map(head, urls))       # its threads run now

    def __getitem__(self, index):
        return self.pool.submit(fetch, self.index[index]).result()      # hangs in a forked worker
```

Fix
---
Start it where it is used, once per worker, and use another for the work in `__init__`:

```python
    def __getitem__(self, index):
        if self.pool is None:
            self.pool = ThreadPoolExecutor(8)
```

Or start it in `worker_init_fn`. stoker's loader hangs here too, but reports it: a warning shows the stack of the worker
that has the batch.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker._record.finding import Finding, counted
from stoker._tools.doctor.check import Check, Mark
from stoker._tools.doctor.facts.process import ProcessFacts
from stoker._tools.doctor.facts.scan import HeldResource, ScanFacts
from stoker._tools.doctor.facts.target import TargetFacts
from stoker._tools.doctor.wording import (
    ABOUT_LOADERS,
    FEEDING,
    FRAME,
    IN_WORKER,
    LOADER,
    OTHERS,
    POOLS,
    RANKS,
    STARTING,
    TRAINERS,
)


def examine(scan: ScanFacts, target: TargetFacts, process: ProcessFacts | None = None) -> Iterator[Finding]:
    """Only where workers are forked. Locks that nobody holds now are told together: they are hazards only if others run."""
    loader = target.loader
    if loader.start_method != "fork" or not loader.num_workers:
        return
    own = sum(each.threads for each in scan.held)
    for each in scan.held:
        if each.live or (each.what == "queue" and own):
            yield CHECK.finding(
                f"{each.path} ({each.kind}){_more(each.count - 1)} {_hazard(each, own)}",
                _advice(each),
                severity="high" if each.live else "moderate",
                where=each.path,
                numbers={"what": each.what, "kind": each.kind, "threads": each.threads, "count": each.count},
            )
    idle = [each for each in scan.held if each.what == "lock" and not each.live]
    others = own + len(process.python_threads if process else ())
    if idle and others:
        count = sum(each.count for each in idle)
        yield CHECK.finding(
            f"{idle[0].path} ({idle[0].kind}){_more(count - 1)} may be locked by one of {counted(others, 'other thread')} when "
            "workers are forked, and is then never released",
            _advice(idle[0]),
            severity="low",
            where=idle[0].path,
            numbers={"what": "lock", "kind": idle[0].kind, "threads": others, "count": count},
        )


def _hazard(each: HeldResource, threads: int) -> str:
    if each.what == "thread":
        return "runs, and is not there in a forked worker"
    if each.what == "pool":
        return (
            f"has {counted(each.threads, 'thread or process', 'threads or processes')} that a forked worker does not have: "
            "what it is given there waits forever"
        )
    if each.what == "queue":
        return f"is served by threads of this process ({threads} run): in a forked worker nothing serves it"
    return "is locked at this moment: a worker forked now waits for it forever"


def _advice(each: HeldResource) -> str:
    if each.what == "lock":
        return "Fork when no other thread uses the dataset, or make the lock in worker_init_fn."
    return "Start it at the first __getitem__ of every worker, or in worker_init_fn."


def _more(others: int) -> str:
    return f" and {others} more like it" if others > 0 else ""


_HELD = (
    r"(?:cannot|can't) (?:pickle|serialize) '?(?:_thread\.(?:R?Lock|lock)|_thread\._local|Thread|ThreadPoolExecutor|"
    r"_queue\.SimpleQueue)'? objects?"
)

CHECK = Check(
    __name__,
    __doc__,
    severity="high",
    examine=examine,
    marks=(
        Mark(_HELD, also=(LOADER, STARTING), weight=22),
        Mark(_HELD, also=(TRAINERS, STARTING), never=(RANKS, POOLS), weight=20),
        Mark(_HELD, also=(STARTING,), never=(OTHERS, FEEDING, POOLS), weight=14),
        Mark(_HELD, also=(ABOUT_LOADERS,), never=(FRAME, POOLS), weight=13),
        Mark(r"cannot schedule new futures after (?:interpreter )?shutdown", also=(IN_WORKER,), weight=16),
    ),
    rows=(5,),
)
