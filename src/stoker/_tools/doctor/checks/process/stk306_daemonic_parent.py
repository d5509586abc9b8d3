"""The loader is used inside a daemonic process, which may have no children.

What it finds
-------------
This process was started by multiprocessing as a daemon (every worker of a `multiprocessing.Pool` is one), and the loader has
workers.

Why it hurts
------------
multiprocessing refuses: `AssertionError: daemonic processes are not allowed to have children`. It comes with the first
`iter(loader)`.

Example
-------
```python
with multiprocessing.Pool(4) as pool:                 # a daemon per fold
    pool.map(train_fold, range(4))                    # train_fold makes DataLoader(..., num_workers=2)
```

Fix
---
Run the folds in processes that are not daemons: `concurrent.futures.ProcessPoolExecutor`, or
`Process(..., daemon=False)`. Or use `num_workers=0` inside them.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker._record.finding import Edit, Finding, counted
from stoker._tools.doctor.check import Check, Mark
from stoker._tools.doctor.facts.process import ProcessFacts
from stoker._tools.doctor.facts.target import TargetFacts
from stoker._tools.doctor.wording import ABOUT_TRAINING, ERROR_LINE, FRAME, LOADER, POOLS, QUOTED_LOADER


def examine(process: ProcessFacts, target: TargetFacts) -> Iterator[Finding]:
    """Whether this process may start the workers that are asked for."""
    loader = target.loader
    if not process.daemonic or not loader.num_workers or loader.engine == "stoker":
        return
    yield CHECK.finding(
        f"this process is a daemon of multiprocessing; the loader wants {counted(loader.num_workers, 'worker')}",
        "Run it in a ProcessPoolExecutor or a Process with daemon=False, or pass num_workers=0.",
        edit=Edit("num_workers=0", f"num_workers={loader.num_workers}", loader.site, kind="argument"),
        where="multiprocessing.current_process().daemon",
        numbers={"num_workers": loader.num_workers},
    )


CHECK = Check(
    __name__,
    __doc__,
    severity="high",
    prevented="It starts its workers anyway: each ends with its parent, so the reason for the ban does not apply.",
    examine=examine,
    marks=(
        Mark(r"daemonic processes are not allowed to have children", also=(LOADER,), weight=28),
        Mark(
            r"daemonic processes are not allowed to have children",
            also=(QUOTED_LOADER,),
            never=(POOLS,),
            weight=20,
        ),
        Mark(
            r"daemonic processes are not allowed to have children",
            also=(rf"\A[^\n]{{0,300}}daemonic[^\n]{{0,60}}\s*\Z|{ABOUT_TRAINING}",),
            never=(
                FRAME,
                POOLS,
                r"(?i)\b(?:celery|billiard|airflow|fastapi|multiprocessing pool)\b|raised <class '",
            ),
            weight=20,
        ),
        Mark(  # a pool's worker iterates over a loader, and the words were cut off
            r"multiprocessing[\\/]pool\.py\", line \d+, in worker\n(?:(?!Traceback)[^\n]*\n){1,60}?"
            r"[^\n]*\biter\([^\n]{0,60}[Ll]oader",
            never=(ERROR_LINE,),
            weight=8,
        ),
    ),
    rows=(46,),
)
