"""The kernel may refuse to fork although memory is free.

What it finds
-------------
The kernel reserves memory strictly (`vm.overcommit_memory=2`), and little is left below its commit limit.

Why it hurts
------------
In that mode a fork has to reserve all private memory of the parent again, for each worker, whether the worker will ever write
to it or not. A training process of 20 GiB with 8 workers reserves 160 GiB, and `os.fork` fails with `OSError: [Errno 12] Cannot
allocate memory` while most of the RAM is free. In the usual mode (0) only a fork that is larger than RAM and swap together
fails.

Example
-------
```console
$ sysctl vm.overcommit_memory
vm.overcommit_memory = 2
$ grep Commit /proc/meminfo
CommitLimit:    33554432 kB
Committed_AS:   30146560 kB
```

Fix
---
As root: `sysctl -w vm.overcommit_memory=0`, or more room with `sysctl -w vm.overcommit_ratio=95`. Without root: make the
loader's workers before the process grows (`persistent_workers=True`, first batch before the model), use
`multiprocessing_context="forkserver"`, or fewer workers.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker._record.finding import Edit, Finding, size
from stoker._tools.doctor.check import Check, Mark
from stoker._tools.doctor.facts.host.machine import MachineFacts
from stoker._tools.doctor.facts.target import TargetFacts
from stoker._tools.doctor.wording import FRAME, LOADER, OTHERS, POOLS, STARTING, WITH_WORKERS

_STRICT = 2
_ROOM_BYTES = 4 << 30
_COMMAND = "sysctl -w vm.overcommit_memory=0"


def examine(machine: MachineFacts, target: TargetFacts | None = None) -> Iterator[Finding]:
    """How much a fork may still reserve."""
    limit_bytes, committed_bytes = machine.commit_limit_bytes, machine.committed_bytes
    if machine.overcommit != _STRICT or limit_bytes is None or committed_bytes is None:
        return
    workers = target.loader.num_workers if target is not None else 1
    left_bytes = max(0, limit_bytes - committed_bytes)
    if not workers or (target is not None and target.loader.start_method != "fork"):
        return
    if left_bytes > max(_ROOM_BYTES, limit_bytes // 2):
        return
    each = (
        f": {size(left_bytes / workers)} for each of {workers} workers"
        if target is not None and workers > 1
        else ""
    )
    yield CHECK.finding(
        f"{here(machine)}{each}. A forked worker reserves as much as its parent has",
        "Let the kernel reserve less strictly, as root. Or start workers with multiprocessing_context='forkserver'.",
        severity="high" if left_bytes < limit_bytes // 10 else "moderate",
        edit=Edit(_COMMAND, kind="shown"),
        where="vm.overcommit_memory",
        numbers={"left_bytes": left_bytes, "limit_bytes": limit_bytes, "committed_bytes": committed_bytes},
    )


def here(machine: MachineFacts) -> str:
    """How strict the kernel is, and what is left."""
    limit_bytes, committed_bytes = machine.commit_limit_bytes, machine.committed_bytes
    if machine.overcommit != _STRICT or limit_bytes is None or committed_bytes is None:
        return ""
    return (
        f"vm.overcommit_memory is 2 and {size(committed_bytes)} of {size(limit_bytes)} are reserved, so that "
        f"{size(max(0, limit_bytes - committed_bytes))} are left"
    )


CHECK = Check(
    __name__,
    __doc__,
    severity="high",
    examine=examine,
    marks=(
        Mark(
            r"OSError: \[Errno 12\] Cannot allocate memory",
            also=(rf"os\.fork\(\)|{STARTING}", LOADER),
            never=(POOLS,),
            weight=25,
        ),
        Mark(
            r"OSError: ?\[Errno 12\]\s{1,8}Cannot allocate memory",
            also=(r"self\.pid ?= ?os\.fork\(\)|multiprocessing[\\/](?:popen_fork|forking)\.py",),
            never=(OTHERS, POOLS),
            weight=14,
        ),
        Mark(
            r"OSError: ?\[Errno 12\] Cannot allocate memory",
            also=(WITH_WORKERS,),
            never=(FRAME, POOLS),
            weight=9,
        ),
        Mark(r"a worker process \(fork\) could not be started: Cannot allocate memory", weight=30),
    ),
    here=here,
    rows=(45,),
)
