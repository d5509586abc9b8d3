"""This process may open few files, and torch needs a descriptor for every tensor.

What it finds
-------------
The tensors of the batches that torch's loader may hold reach, or nearly reach, the limit of open files (`ulimit -n`).
Without a loader: the limit is below 1024. Also found: a worker that has more files open after each sample, which will
reach any limit.

Why it hurts
------------
With torch's default sharing strategy each tensor of a batch costs one descriptor in the process that receives it, until the
tensor is freed. At the limit come `Too many open files. Communication with the workers is no longer possible`, `received 0
items of ancdata`, or silence. A loop that keeps batches (a list of outputs or labels) adds all of theirs: ten batches of 10
tensors are 100 descriptors.

Example
-------
```python
loader = DataLoader(ds, batch_size=32, num_workers=8)     # a sample is a dict of 40 tensors
for batch in loader: ...                                  # 8 × 2 × 40 = 640 of 1024 descriptors
```

Fix
---
Raise the limit in the script, as far as the hard limit allows, before the first loader:

```python
import resource
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
```

Or `ulimit -n 65536` in the shell, `docker run --ulimit nofile=65536`. Keep `tensor.clone()` or plain numbers instead of the
batch's tensors. Fewer, larger tensors per sample help most.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker._record.finding import Finding, counted
from stoker._tools.doctor.check import Check, Mark
from stoker._tools.doctor.facts.host.machine import MachineFacts
from stoker._tools.doctor.facts.process import ProcessFacts
from stoker._tools.doctor.facts.samples import SampleFacts
from stoker._tools.doctor.facts.target import TargetFacts
from stoker._tools.doctor.facts.worker import WorkerFacts
from stoker._tools.doctor.wording import ABOUT_LOADERS, FRAME, IN_WORKER, LOADER, NETWORK, POOLS

_USUAL = 1024
_UNLIMITED = 1 << 62
_PER_WORKER = 5
"""Pipes, sentinels and sockets: what a worker costs the parent beside its tensors."""


def examine(
    machine: MachineFacts,
    target: TargetFacts | None = None,
    samples: SampleFacts | None = None,
    process: ProcessFacts | None = None,
    worker: WorkerFacts | None = None,
) -> Iterator[Finding]:
    """Against the tensors of this loader's batches; without a loader against what is usual."""
    limit = machine.descriptors
    if limit is None:
        return
    if worker is not None and worker.descriptors_per_sample > 0:
        yield _left_open(worker, limit)
    if target is not None and (target.loader.engine == "stoker" or not target.loader.num_workers):
        return
    if process is not None and process.sharing_strategy == "file_system":
        return  # its tensors travel by name
    if target is not None and samples is not None and samples.batch_tensors:
        loader, tensors = target.loader, samples.batch_tensors
        left = limit - (machine.descriptors_open or 0) - _PER_WORKER * loader.num_workers
        fit = max(0, left // tensors)
        if fit >= 4 * (loader.window + 1):
            return
        yield CHECK.finding(
            f"a batch has {counted(tensors, 'tensor')}, each of which takes a descriptor; of {limit}, {left} are left for them: "
            f"{counted(fit, 'batch', 'batches')}. {loader.window} may be on their way, and batches that the loop keeps add to that",
            _remedy(machine),
            severity="high" if fit <= loader.window + 1 else "moderate",
            where="RLIMIT_NOFILE",
            numbers={
                "limit": limit,
                "left": left,
                "batch_tensors": tensors,
                "fit": fit,
                "window": loader.window,
            },
        )
    elif limit < _USUAL:
        yield CHECK.finding(
            f"{here(machine)}; {_USUAL} is usual",
            _remedy(machine),
            severity="high" if limit <= _USUAL // 4 else "moderate",
            where="RLIMIT_NOFILE",
            numbers={"limit": limit, "hard": machine.descriptors_hard, "open": machine.descriptors_open},
        )


def _left_open(worker: WorkerFacts, limit: int) -> Finding:
    """Every loader has this, with workers or without."""
    lasts = int((limit - worker.descriptors) / worker.descriptors_per_sample)
    return CHECK.finding(
        f"a worker has {worker.descriptors_per_sample:.2g} files more open after every sample, such as {worker.left_open[0]}: "
        f"at this rate, the limit of {_in_words(limit)} is reached after about {lasts:,} samples",
        "Close what __getitem__ opens: with open(...) as file, or one handle per worker that is opened once.",
        severity="high",
        where="dataset",
        numbers={
            "descriptors_per_sample": worker.descriptors_per_sample,
            "limit": limit,
            "samples": lasts,
            "file": worker.left_open[0],
        },
    )


def _remedy(machine: MachineFacts) -> str:
    soft, hard = machine.descriptors, machine.descriptors_hard
    if soft is not None and hard is not None and hard > soft:
        return (
            "Before the first loader: resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard)); the hard limit is "
            f"{_in_words(hard)}."
        )
    return "Raise the hard limit: docker run --ulimit nofile=65536, or LimitNOFILE= of the service, or limits.conf."


def here(machine: MachineFacts) -> str:
    """How many this process may open."""
    if machine.descriptors is None or machine.descriptors >= _UNLIMITED:
        return ""
    raised = (machine.descriptors_hard or 0) > machine.descriptors
    hard = f" (it may raise that to {_in_words(machine.descriptors_hard or 0)})" if raised else ""
    now = "" if machine.descriptors_open is None else f", {machine.descriptors_open} are open now"
    return f"this process may open {_in_words(machine.descriptors)} files{hard}{now}"


def _in_words(limit: int) -> str:
    return "any number" if limit >= _UNLIMITED else str(limit)


_NOT_OURS = r"uvicorn|nginx|(?i:\binotify|\bEMFILE: |\btf\b|tensorflow|keras)|[Tt]oo many open files: ?['\"/]"
"""Servers, Node, another framework, and files that the program itself leaves open."""

CHECK = Check(
    __name__,
    __doc__,
    severity="high",
    prevented="All batches lie in one file that every worker has open from the start; kept batches cost no descriptor.",
    examine=examine,
    marks=(
        Mark(r"Too many open files\. Communication with the workers is no longer possible", weight=30),
        Mark(
            r"unable to (?:open shared? memory object|open file|mmap)[^\n]{0,300}Too many open files",
            weight=30,
        ),
        Mark(r"received (?:\d+|%d) items of ancdata", weight=28),
        Mark(
            r"unable to open shared memory object \S{1,80} in read[-/]write mode",
            never=(r"No such file or directory|No space left|File exists|Permission denied",),
            weight=20,
        ),
        Mark(
            r"[Tt]oo many (?:open files|files open)",
            also=(
                rf"{IN_WORKER}|reductions\.py|resource_sharer|rebuild_storage|{LOADER}|\b(?:get|build|make)_\w*data_?loaders?\(",
            ),
            never=(r"uvicorn|nginx|http\.server|Accept failed|aiohttp",),
            weight=24,
        ),
        Mark(  # told in words
            r"(?i)too many (?:open files|files open)|\bEMFILE\b",
            also=(rf"{ABOUT_LOADERS}|reductions?\.py|resource_sharer|set_sharing_strategy\(",),
            never=(FRAME, NETWORK, _NOT_OURS),
            weight=9,
        ),
        Mark(  # nothing tells more than that there was a training; a file's name would tell of another cause
            r"\[Errno 24\] Too many open files(?!: ?['\"/])",
            also=(r"(?i)\btrain|\bepoch|\bnum_workers\b",),
            never=(FRAME, NETWORK, POOLS, r"(?i)uvicorn|nginx|\bserver\b|\bnode\b|\btf\b|tensorflow|keras"),
            weight=7,
        ),
        Mark(r"needs descriptors and the system refused them", weight=28),
    ),
    here=here,
    rows=(9, 10),
)
