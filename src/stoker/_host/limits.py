"""Reads what the kernel allows this process, from files that tests can make. None: not known. Never raises."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from stoker._host import cgroups
from stoker._host.kernel_files import number, text

_UNLIMITED = (1 << 63) - 1
INFINITE = -1
"""What ``resource.RLIM_INFINITY`` is."""


def memory_accounts(proc: Path) -> dict[str, int]:
    """/proc/meminfo in bytes, by name."""
    found = {}
    for line in text(proc / "meminfo").splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdigit():
            found[name] = int(words[0]) << (10 if words[1:] == ["kB"] else 0)
    return found


def resource_limit(constant: str) -> tuple[int | None, int | None]:
    """Soft and hard limit by the name that ``resource`` has for it, INFINITE for none; None where the platform has no limit."""
    try:
        import resource

        soft, hard = resource.getrlimit(getattr(resource, constant))
    except (ImportError, AttributeError, OSError, ValueError):
        return None, None
    return int(soft), int(hard)


def descriptors(proc: Path) -> tuple[int | None, int | None]:
    """RLIMIT_NOFILE, soft and hard."""
    return _limit(proc, "Max open files", "RLIMIT_NOFILE")


def descriptors_open(root: Path) -> int | None:
    """How many this process has open."""
    for folder in (root / "proc" / "self" / "fd", root / "dev" / "fd"):
        try:
            return max(0, len(os.listdir(folder)) - 1)  # less the one that lists them
        except OSError:
            continue
    return None


def processes(proc: Path) -> int | None:
    """RLIMIT_NPROC, soft."""
    return _limit(proc, "Max processes", "RLIMIT_NPROC")[0]


def maps(proc: Path) -> int | None:
    """Mappings of this process."""
    return text(proc / "self" / "maps").count("\n") or None


class Pids(NamedTuple):
    """Tasks that a cgroup may have, and has."""

    limit: int
    now: int


def pids(sys: Path, proc: Path) -> Pids | None:
    """Return the limit of the cgroup that has the fewest processes left; None where no cgroup has a limit."""
    tightest: Pids | None = None
    for folder, _ in cgroups.folders("pids", sys=sys, proc=proc):
        limit, now = number(folder / "pids.max"), number(folder / "pids.current")
        if (
            limit is not None
            and now is not None
            and (tightest is None or limit - now < tightest.limit - tightest.now)
        ):
            tightest = Pids(limit, now)
    return tightest


def _limit(proc: Path, name: str, constant: str) -> tuple[int | None, int | None]:
    for line in text(proc / "self" / "limits").splitlines():
        if line.startswith(name):
            words = line[len(name) :].split()
            if len(words) >= 2:
                return _bound(words[0]), _bound(words[1])
    soft, hard = resource_limit(constant)
    return _UNLIMITED if soft == INFINITE else soft, _UNLIMITED if hard == INFINITE else hard


def _bound(word: str) -> int | None:
    return int(word) if word.isdigit() else _UNLIMITED if word == "unlimited" else None
