"""What the kernel allows this process, read from files that tests can make. What is not told is None; nothing here raises."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from stoker._host import cgroups

_UNLIMITED = (1 << 63) - 1


class Throttling(NamedTuple):
    """Periods of a CPU quota, how many were cut short, and for how long in all."""

    periods: int | None = None
    throttled: int | None = None
    throttled_s: float | None = None


def throttling(sys: Path, proc: Path) -> Throttling:
    """Of the cgroup that was throttled most, since it was made."""
    from stoker._record.machine import Dials  # brings the record, which nothing else here needs

    found = Dials(sys_root=sys, proc=proc).read()
    lost_s = None if found.throttled_ns is None else found.throttled_ns / 1e9
    return Throttling(found.quota_periods, found.throttled_periods, lost_s)


def memory_accounts(proc: Path) -> dict[str, int]:
    """/proc/meminfo in bytes, by name."""
    found = {}
    for line in text(proc / "meminfo").splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdigit():
            found[name] = int(words[0]) << (10 if words[1:] == ["kB"] else 0)
    return found


def space(folder: Path) -> tuple[int | None, int | None]:
    """Size and free bytes of the file system that a folder lies on."""
    try:
        found = os.statvfs(folder)
    except (OSError, AttributeError, ValueError):
        return None, None
    return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize


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
    """Of the cgroup that has the least left; None where no cgroup has a limit."""
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


def number(file: Path) -> int | None:
    """The number in a file; None for "max", and where there is none."""
    try:
        return int(text(file))
    except ValueError:
        return None


def text(file: Path) -> str:
    """All of a file, "" where it cannot be read."""
    try:
        return file.read_text(errors="replace")
    except (OSError, ValueError):
        return ""


def _limit(proc: Path, name: str, constant: str) -> tuple[int | None, int | None]:
    for line in text(proc / "self" / "limits").splitlines():
        if line.startswith(name):
            words = line[len(name) :].split()
            if len(words) >= 2:
                return _bound(words[0]), _bound(words[1])
    try:
        import resource

        found = resource.getrlimit(getattr(resource, constant))
    except (ImportError, AttributeError, OSError, ValueError):
        return None, None
    soft, hard = (_UNLIMITED if each == resource.RLIM_INFINITY else int(each) for each in found)
    return soft, hard


def _bound(word: str) -> int | None:
    return int(word) if word.isdigit() else _UNLIMITED if word == "unlimited" else None
