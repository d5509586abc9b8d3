"""The system refused a worker.

What it finds
-------------
A worker, or a thread of the loader, could not be started: the limit on processes or threads is reached (`EAGAIN`), or
something the start needs is missing.

Why it hurts
------------
Every worker is a process with several threads; in containers (`pids.max`) and on shared machines (`ulimit -u`) some
hundreds may be all there is, and other ranks count too.

Example
-------
```
BlockingIOError: [Errno 11] Resource temporarily unavailable
RuntimeError: can't start new thread
```

Fix
---
Fewer workers per rank, and one thread per native pool: `OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1`. Or a higher limit:
`ulimit -u`, `docker run --pids-limit=-1`. Out of memory at fork is STK208, out of descriptors STK202.
"""

from __future__ import annotations

from stoker._doctor.check import Check, Mark
from stoker._doctor.wording import LOADER

CHECK = Check(
    __name__,
    __doc__,
    severity="high",
    prevented="The error has the limit and the number in use. Workers that were refused later on are done without, as long as"
    ' one is left; `executor="thread"` needs no processes.',
    marks=(
        Mark(
            r"BlockingIOError: \[Errno (?:11|35)\] Resource temporarily unavailable",
            also=(
                r"os\.fork\(\)|popen_fork|forkserver|in _launch",
                LOADER,
            ),
            weight=25,
        ),
        Mark(r"can't start new thread", also=(LOADER,), never=(r"uvicorn|gunicorn|tornado",), weight=22),
        Mark(
            r"'?_MultiProcessingDataLoaderIter'? object has no attribute '_(?:workers_status|shutdown|workers|"
            r"pin_memory_thread\w*)'",
            weight=8,
        ),
        Mark(r"a worker process \(\w+\) could not be started:", weight=27),
    ),
    rows=(45,),
)
