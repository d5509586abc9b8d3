"""The system refused a worker.

What it finds
-------------
A worker, or a thread of the loader, could not be started: the limit on processes or threads is reached (`EAGAIN`), or something
the start needs is missing. Beforehand: the cgroup has fewer tasks left (`pids.max`) than the loader's workers need, four for
each, or fewer than 64 when no loader is known.

Why it hurts
------------
Every worker is a process with several threads; in containers (`pids.max`) and on shared machines (`ulimit -u`) the
limit may be some hundreds, and other ranks count too.

Example
-------
```text
  File ".../torch/utils/data/dataloader.py", line 1043, in __init__
    w.start()
  File ".../multiprocessing/popen_fork.py", line 70, in _launch
    self.pid = os.fork()
BlockingIOError: [Errno 11] Resource temporarily unavailable
```

Fix
---
Fewer workers per rank, and one thread per native pool: `OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1`. Or a higher limit: `ulimit
-u`, `docker run --pids-limit=-1`. Out of memory at fork is STK208, out of descriptors STK202.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker._record.finding import Finding, counted
from stoker._tools.doctor.check import Check, Mark
from stoker._tools.doctor.facts.host.machine import MachineFacts
from stoker._tools.doctor.facts.target import TargetFacts
from stoker._tools.doctor.wording import ABOUT_LOADERS, ERROR_LINE, FRAME, LOADER, POOLS, TRAINERS

_FEW = 64
_PER_WORKER = 4
"""Tasks of a worker of torch's that has made its first batch: three when forked, four when spawned."""


def examine(machine: MachineFacts, target: TargetFacts | None = None) -> Iterator[Finding]:
    """What the cgroup has left for workers and their threads."""
    if machine.pids_limit is None or machine.pids_now is None:
        return
    left = max(0, machine.pids_limit - machine.pids_now)
    workers = target.loader.num_workers if target is not None else 0
    wanted = workers * _PER_WORKER if target is not None else _FEW
    if not wanted or left >= wanted:
        return
    need = f"; {counted(workers, 'worker')} and their threads are about {wanted}" if workers else ""
    yield CHECK.finding(
        f"{here(machine)}{need}",
        "Start fewer workers, or raise the limit: docker run --pids-limit=-1.",
        severity="high" if workers else "low",
        where="pids.max",
        numbers={"limit": machine.pids_limit, "now": machine.pids_now, "left": left, "wanted": wanted},
    )


def here(machine: MachineFacts) -> str:
    """What the cgroup allows, and has."""
    if machine.pids_limit is None or machine.pids_now is None:
        return ""
    return f"the cgroup has {machine.pids_now} processes and threads, of {machine.pids_limit} allowed"


CHECK = Check(
    __name__,
    __doc__,
    severity="high",
    prevented="The error names the limit and the number in use. Workers that were refused later on are done without, as long as"
    ' one is left; `executor="thread"` needs no processes.',
    examine=examine,
    here=here,
    marks=(
        Mark(
            r"BlockingIOError: \[Errno (?:11|35)\] Resource temporarily unavailable",
            also=(r"os\.fork\(\)|popen_fork|forkserver|in _launch", LOADER),
            weight=25,
        ),
        Mark(r"can't start new thread", also=(LOADER,), never=(r"uvicorn|gunicorn|tornado",), weight=22),
        Mark(  # told in words
            r"(?i)can't start new thread", also=(ABOUT_LOADERS,), never=(ERROR_LINE, FRAME, POOLS), weight=6
        ),
        Mark(  # the frames that tell who started it were cut off
            r"(?i)can't start new thread",
            also=(TRAINERS,),
            never=(
                r"uvicorn|gunicorn|tornado|threading\.py\", line \d+, in start|tensorboard|wandb|mlflow|neptune|comet_ml",
                POOLS,
            ),
            weight=10,
        ),
        Mark(
            r"_MultiProcessingDataLoaderIter'? object has no attribute '_(?:workers_status|shutdown|workers|"
            r"pin_memory_thread\w*)'",
            weight=8,
        ),
        Mark(r"a worker process \(\w+\) could not be started:", weight=27),
    ),
    rows=(45,),
)
