"""Little memory is left.

What it finds
-------------
The memory that this process can still use is less than the workers need to start, or less than 1 GiB. Both the machine
and the cgroup count. It also finds a `/dev/shm` that promises more than the cgroup may hold, and swap that is in use.

Why it hurts
------------
A worker needs its own memory: about 11 MiB if forked, about 145 MiB under spawn and forkserver, where each imports
torch. What is written to `/dev/shm` counts as memory of the cgroup as well: 64 GiB of it do not help where the limit is 8.
At the limit the kernel kills a process: `DataLoader worker (pid …) is killed by signal: Killed`.

Example
-------
```sh
docker run --memory=2g image python train.py      # num_workers=16, spawn: 16 × 145 MiB = 2.3 GiB
```

Fix
---
Fewer workers, `multiprocessing_context="fork"` where nothing forbids it, a smaller `prefetch_factor`, or a higher limit
(`--memory`, `resources.limits.memory`). Large lists and dicts on the dataset: `stoker.share`. STK604 is about the
memory of undelivered batches.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker._record.finding import Finding, size
from stoker._tools.doctor.check import Check, Mark
from stoker._tools.doctor.facts.host.machine import MachineFacts
from stoker._tools.doctor.facts.target import LoaderArguments, TargetFacts
from stoker._tools.doctor.wording import LOADER, POOLS

_LITTLE_BYTES = 1 << 30
_FORKED_BYTES = 11 << 20
_FRESH_BYTES = 145 << 20
"""Private memory of a worker of torch 2.13 that has made its first batches of a few numbers."""


def examine(machine: MachineFacts, target: TargetFacts | None = None) -> Iterator[Finding]:
    """Room for the workers alone; what their batches need is another check's."""
    room_bytes = machine.available_bytes
    if room_bytes is None:
        return
    wanted_bytes = _wanted(target.loader) if target is not None else 0
    numbers = {
        "available_bytes": room_bytes,
        "limit_bytes": machine.memory_bytes,
        "workers_bytes": wanted_bytes,
    }
    if target is not None and wanted_bytes > room_bytes / 2:
        loader = target.loader
        yield CHECK.finding(
            f"{here(machine)}; {loader.num_workers} workers take about {size(wanted_bytes)} before their first sample "
            f"({loader.start_method})",
            f"Start {max(0, int(loader.num_workers * room_bytes / 2 / wanted_bytes))} workers or fewer, or raise the limit.",
            severity="high" if wanted_bytes > room_bytes else "moderate",
            where="memory",
            numbers=numbers,
        )
    elif room_bytes < _LITTLE_BYTES and (target is None or target.loader.num_workers):
        yield CHECK.finding(
            here(machine),
            "End other programs here, start fewer workers, or raise the limit.",
            severity="moderate" if room_bytes < _LITTLE_BYTES // 2 else "low",
            where="memory",
            numbers=numbers,
        )
    yield from _promises(machine, target)


def _wanted(loader: LoaderArguments) -> int:
    if loader.start_method == "fork" or not loader.num_workers:
        return loader.num_workers * _FORKED_BYTES
    if loader.engine == "stoker":  # its workers are forked from one process that has imported torch
        return _FRESH_BYTES + loader.num_workers * _FORKED_BYTES
    return loader.num_workers * _FRESH_BYTES


def _promises(machine: MachineFacts, target: TargetFacts | None) -> Iterator[Finding]:
    limit_bytes, shm_bytes = machine.cgroup_limit_bytes, machine.shm_bytes
    torch = target is None or (target.loader.engine == "torch" and target.loader.num_workers > 0)
    if torch and machine.shm_type == "tmpfs" and limit_bytes and shm_bytes and shm_bytes > limit_bytes:
        yield CHECK.finding(
            f"/dev/shm holds {size(shm_bytes)}, but the cgroup may take {size(limit_bytes)}, which includes what lies in /dev/shm",
            "Plan for the cgroup's limit: batches in /dev/shm and the processes share it.",
            severity="none",
            where="/dev/shm",
            numbers={"shm_bytes": shm_bytes, "limit_bytes": limit_bytes},
        )
    swap_bytes, free_bytes = machine.swap_bytes, machine.swap_free_bytes
    if swap_bytes and free_bytes is not None and swap_bytes - free_bytes > max(1 << 30, swap_bytes // 2):
        yield CHECK.finding(
            f"{size(swap_bytes - free_bytes)} of {size(swap_bytes)} swap are in use: workers may have to read from there",
            "End other programs here, or start fewer workers.",
            severity="low",
            where="swap",
            numbers={"swap_bytes": swap_bytes, "used_bytes": swap_bytes - free_bytes},
        )


def here(machine: MachineFacts) -> str:
    """What can still be taken, and of how much."""
    if machine.available_bytes is None:
        return ""
    limit_bytes = machine.cgroup_limit_bytes
    whose = (
        "the cgroup" if limit_bytes is not None and limit_bytes == machine.memory_bytes else "this machine"
    )
    of = "" if machine.memory_bytes is None else f" of the {size(machine.memory_bytes)} that {whose} has"
    return f"{size(machine.available_bytes)}{of} can still be taken"


CHECK = Check(
    __name__,
    __doc__,
    severity="high",
    examine=examine,
    marks=(
        Mark(r"\[WinError 1455\]", also=(rf"{LOADER}|spawn_main|multiprocessing|torch[\\/]lib",), weight=24),
        Mark(
            r"DLL load failed[^\n]{0,120}(?:The paging file is too small|页面文件太小|Auslagerungsdatei ist zu klein|"
            r"fichier de pagination est insuffisant|paginación es demasiado pequeño|Файл подкачки слишком мал|"
            r"ページング ファイルが小さすぎる|페이징 파일이 너무 작|"
            r"arquivo de paginação é muito pequeno|file di paging [^\n]{0,20}troppo piccolo|"
            r"[Pp]lik stronicowania jest za mały|disk belleği dosyası çok küçük)",
            also=(rf"{LOADER}|spawn_main",),
            weight=24,
        ),
        Mark(
            r"(?:Couldn't open shared (?:file mapping|event)|unable to open shared file mapping|"
            r"Couldn't map view of shared file)[^\n]{0,200}(?:error code: <(?:1455|8|5|0|87)>)?",
            weight=24,
        ),
        Mark(  # a title above a child's frames
            r"(?i)\bpag(?:e|ing) ?files?\b|页面文件",
            also=(r"spawn_main|multiprocessing[\\/]spawn\.py",),
            never=(POOLS,),
            weight=14,
        ),
        Mark(r"there is no room for the pages|memory that a batch needs cannot be had", weight=20),
    ),
    here=here,
    rows=(8, 44),
)
