"""A worker was killed by a signal.

What it finds
-------------
A worker process ended by SIGSEGV, SIGABRT, SIGILL, SIGFPE, SIGTERM or another signal that is neither the OOM killer's
(STK603) nor that of a full `/dev/shm` (STK201).

Why it hurts
------------
Native code broke: a decoder, an extension module, a library that does not survive fork. torch's error names neither the
sample nor the place in the code.

Example
-------
```text
RuntimeError: DataLoader worker (pid 4711) is killed by signal: Segmentation fault.
```

Fix
---
Run with `num_workers=0` and `python -X faulthandler train.py`: the same sample crashes there with a Python stack. If it
does not, a library broke in the fork: use `multiprocessing_context="forkserver"`.

- SIGSEGV, SIGILL: a library built for another version or another processor: reinstall it. Open files of lmdb, h5py and
  the like in the worker (STK103).
- SIGABRT: the library's message is on stderr, above the traceback.
- SIGTERM: something ended it: a job scheduler, a time limit, a clean-up script.
"""

from __future__ import annotations

from stoker._tools.doctor.check import Check, Mark
from stoker._tools.doctor.wording import ABOUT_LOADERS, FOREIGN, FRAME, IN_WORKER, PIDS, POOLS, told

CHECK = Check(
    __name__,
    __doc__,
    severity="high",
    prevented="A new worker takes its place and the batch is made again (`restarts`); the error names signal, sample, and the"
    " Python stack at which the worker died.",
    marks=(
        Mark(rf"worker {PIDS} is killed by signal: [Tt]erminated", never=(FOREIGN,), weight=22),
        Mark(r"somebody sent it SIGKILL \(a job scheduler, another program, a person\)", weight=23),
        Mark(
            rf"DataLoader worker(?: {PIDS})? is killed by signal"
            r"(?!:? *(?:[Kk]illed|[Tt]erminated|[Bb]us error|9\b|SIGKILL))",
            weight=22,
        ),
        Mark(
            r"Unexpected (?:segmentation fault|floating-point exception|illegal instruction) encountered in worker",
            weight=23,
        ),
        Mark(rf"(?:DataLoader )?worker {PIDS} exited unexpectedly with exit code -(?!7\b|9\b)\d+", weight=22),
        told(r"segmentation fault|segfault\w*|seg fault\w*|core dumped", weight=6),
        Mark(  # what the C library said of it, where torch's words were cut off
            r"\b(?:malloc\w*|free|munmap_chunk|realloc)\(\): |\bdouble free or corruption|\bstack smashing detected",
            also=(r"_error_if_any_worker_fails",),
            weight=16,
        ),
        Mark(
            r"Fatal Python error: (?:Segmentation fault|Aborted|Illegal instruction|Floating[ -]point exception)",
            also=(IN_WORKER,),
            weight=22,
        ),
        Mark(  # told in words
            r"Fatal Python error: ",
            also=(
                r"(?i)\bworkers? (?:process(?:es)? )?(?:is|was|are|were|gets?|got|been|dies|died|crash\w*)\b",
                ABOUT_LOADERS,
            ),
            never=(FRAME, FOREIGN, POOLS),
            weight=7,
        ),
    ),
    rows=(1, 11),
)
