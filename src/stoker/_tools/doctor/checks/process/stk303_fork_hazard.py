"""Threads live in this process that a fork would lose.

What it finds
-------------
Workers are forked, and this process has live threads of a library whose pool does not survive that: polars, fsspec
(s3fs, gcsfs), zarrs, lance, lancedb, PyAV. Other live Python threads are named as a lesser risk. Threads of BLAS,
OpenMP and OpenCV are no risk at rest: these libraries survive a fork that does not happen while they start or end
threads. Those of a notebook's kernel, a debugger or tqdm are none either: they hold no lock that a dataset needs.

Why it hurts
------------
A fork copies one thread. In the worker the library's pool looks intact but has no threads. The first call waits
forever, and so does the first batch. A lock that another thread holds at that moment stays locked in every worker.

Example
-------
```python
table = pl.read_parquet("labels.parquet")                      # starts polars' pool here
loader = DataLoader(Rows(table), num_workers=4)                # each worker waits in its first pl call
```

Fix
---
`multiprocessing_context="forkserver"` (or "spawn"), which starts workers from a clean process. Or do not use the
library before workers start. Or do not use it in the dataset: pass numpy arrays.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker._record.finding import Edit, Finding, counted
from stoker._tools.doctor.check import Check, Mark
from stoker._tools.doctor.facts.process import ProcessFacts
from stoker._tools.doctor.facts.scan import LocalCode, ScanFacts, Unsendable
from stoker._tools.doctor.facts.target import LoaderArguments, TargetFacts
from stoker._tools.doctor.wording import ABOUT_LOADERS, ERROR_LINE, HANGING, LOADER, TRAINERS

_EDIT = 'multiprocessing_context="forkserver"'
_HARMLESS = ("IPythonHistorySavingThread", "IOPub", "Heartbeat", "Control", "pydevd", "tqdm_monitor")
"""How names of threads begin that hold no lock which a dataset could need."""
_MOST_NAMED = 5


def examine(process: ProcessFacts, target: TargetFacts, scan: ScanFacts | None = None) -> Iterator[Finding]:
    """A listed pool is a hazard; another thread may be one; a number of native threads says nothing.

    A fork server is no way out for what cannot be sent there.
    """
    loader = target.loader
    if loader.start_method != "fork" or not loader.num_workers:
        return
    if process.hazards:
        yield _listed(process, loader, _stuck(scan))
        return
    threads = [
        name
        for name in process.python_threads
        if name not in process.tool_threads and not name.startswith(_HARMLESS)
    ]
    if threads and loader.engine != "stoker":
        stuck = _stuck(scan)
        shown = ", ".join(threads[:_MOST_NAMED]) + (", …" if len(threads) > _MOST_NAMED else "")
        yield CHECK.finding(
            f"{counted(len(threads), 'Python thread')} beside the main one: {shown}. A lock that one holds while "
            "workers are forked stays locked in them",
            f"Start such threads after the loader's first iter(), or pass multiprocessing_context='forkserver'{_first(stuck)}.",
            severity="low",
            edit=None if stuck else Edit(_EDIT, site=loader.site, kind="argument"),
            where=threads[0],
            numbers={"python_threads": len(threads), "native_threads": process.native_threads},
        )


def _stuck(scan: ScanFacts | None) -> str:
    """The path of a part that plain pickle cannot send; "" when there is none."""
    parts: tuple[Unsendable | LocalCode, ...] = (*scan.unsendable, *scan.local_code) if scan else ()
    return parts[0].path if parts else ""


def _first(stuck: str) -> str:
    return f" once {stuck} can be sent there" if stuck else ""


def _listed(process: ProcessFacts, loader: LoaderArguments, stuck: str) -> Finding:
    named = " and ".join(f"{each.module} ({each.pool})" for each in process.hazards)
    evidence = f"threads of {named} live in this process; workers are forked and do not have them"
    numbers = {"hazards": len(process.hazards), "native_threads": process.native_threads}
    where = process.hazards[0].module
    if loader.engine == "stoker":
        return CHECK.finding(
            evidence,
            "Leave multiprocessing_context open: workers then come from a clean fork server, if the dataset can travel there.",
            severity="none",
            where=where,
            numbers=numbers,
        )
    return CHECK.finding(
        evidence,
        f"Pass multiprocessing_context='forkserver'{_first(stuck)}. If workers never use the library, fork is fine.",
        edit=None if stuck else Edit(_EDIT, site=loader.site, kind="argument"),
        where=where,
        numbers=numbers,
    )


_RUBY = r"\b(?:ruby|rails|bundle exec|puma|unicorn|falcon|sidekiq|resque|rspec)\b|[A-Z]\w+::[A-Z]\w+"
"""Another language, where forked processes of macOS say the same."""

CHECK = Check(
    __name__,
    __doc__,
    severity="high",
    prevented="Workers move to a clean fork server when such threads live and the dataset can travel; the log says so. One that "
    "hangs all the same is reported with its stack.",
    examine=examine,
    marks=(
        Mark(
            r"Terminating: fork\(\) called from a process already using GNU OpenMP, this is unsafe", weight=25
        ),
        Mark(
            r"may have been in progress in another thread when fork\(\) was called",
            also=(rf"{LOADER}|{TRAINERS}",),
            never=(_RUBY,),
            weight=22,
        ),
        Mark(
            r"The process has forked and you cannot use this CoreFoundation functionality safely", weight=22
        ),
        Mark(
            r"Unable to handle autograd's threading in combination with fork-based multiprocessing", weight=24
        ),
        Mark(r"This class is not fork-safe", also=(rf"{LOADER}|fsspec|s3fs|gcsfs",), weight=22),
        Mark(  # told in words
            rf"(?i)\b{HANGING}",
            also=(
                ABOUT_LOADERS,
                r"(?i)\bfork",
                r"(?i)\b(?:polars|s3fs|gcsfs|fsspec|pyarrow|grpc|zarr|lance|lancedb|pyav|tensorstore)\b",
            ),
            never=(ERROR_LINE, r"ProcessPoolExecutor|\bPool\("),
            weight=7,
        ),
        Mark(  # gdb: a thread of Python waits for a lock of a pool that stayed behind in the parent
            r"^#\d+ +(?:0x[0-9a-f]+ in )?(?:__lll_lock_wait\w*|__GI___pthread_mutex_lock|pthread_mutex_lock|futex_wait\w*|"
            r"do_futex_wait\w*|sem_wait\w*|__new_sem_wait\w*)\b",
            also=(
                r"lib(?:iomp5|gomp|omp|mkl\w*|openblas\w*|opencv\w*|arrow\w*)[.\w-]*\.(?:so|dylib)",
                r"lib(?:torch_python|python3)|THP\w+|_PyEval_|cfunction_\w+|PyEval_",
            ),
            weight=12,
        ),
        Mark(r"OMP: Warning #190: Forking a process while a parallel region is active", weight=3),
        Mark(r"is multi-threaded, use of (?:fork|forkpty)\(\) may lead to deadlocks in the child", weight=3),
        Mark(r"os\.fork\(\) was called\. os\.fork\(\) is incompatible with multithreaded code", weight=3),
        Mark(r"calling into gRPC, skipping fork\(\) handlers|fork_posix\.cc:\d+\]", weight=3),
        Mark(r"do not survive (?:the fork that starts the workers|a fork)", weight=4),
    ),
    rows=(5, 6),
)
