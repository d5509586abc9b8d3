"""Finds files that dead processes left in /dev/shm. They hold memory until they are deleted.

A name is called left over only when all of this holds: it is one that torch, multiprocessing, loky or OpenMP gives; it belongs to
this user; it is not new; the process that its name tells, if any, is gone; and no live process of this user maps it or has it open.
When that cannot be made sure of, it is undecided and nothing is said of it.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

_NAMES = re.compile(
    r"torch_(?P<torch>\d+)_"
    r"|(?:sem\.)?loky-(?P<loky>\d+)-"
    r"|__KMP_REGISTERED_LIB_(?P<openmp>\d+)_"
    r"|sem\.mp-|psm_|wnsm_"
)
_NEW_S = 60.0
"""A process that has just made a file may not have mapped it yet."""
_NEW_UNSIGNED_S = 600.0
"""Names that tell no process may be kept for one that is about to start."""
_MANAGER = "torch_shm_manager"[:15]
"""It deletes torch's files of dead processes itself, while it lives: with the strategy file_system they may be on their way."""
_MOST_FILES = 20_000
_MOST_NAMES = 20


@dataclass(frozen=True, slots=True)
class Leftovers:
    """``names`` are the largest ones; ``count`` and ``total_bytes`` are of all."""

    count: int
    total_bytes: int
    oldest_s: float
    names: tuple[str, ...]
    kinds: tuple[str, ...]
    """How their names begin: "torch_", "sem.mp-"."""
    undecided: int = 0
    """Candidates of which there was no time, or no permission, to find out whether somebody uses them."""


class _File(NamedTuple):
    name: str
    kind: str
    size_bytes: int
    age_s: float


def left_over(
    shm: Path, proc: Path, *, budget_s: float = 0.03, now_s: float | None = None
) -> Leftovers | None:
    """Look now. None where there is no such folder. ``budget_s`` bounds the look at other processes. Never raises."""
    until_s = time.monotonic() + budget_s
    try:
        alive = {name for name in os.listdir(proc) if name.isdigit()}
        files = list(_candidates(shm, alive, time.time() if now_s is None else now_s))
    except OSError:
        return None
    if not files:
        return Leftovers(0, 0, 0.0, (), ())
    used = _used({each.name for each in files}, proc, alive, until_s)
    if used is None:
        return Leftovers(0, 0, 0.0, (), (), undecided=len(files))
    dead = sorted((each for each in files if each.name not in used), key=lambda each: -each.size_bytes)
    return Leftovers(
        len(dead),
        sum(each.size_bytes for each in dead),
        max((each.age_s for each in dead), default=0.0),
        tuple(each.name for each in dead[:_MOST_NAMES]),
        tuple(sorted({each.kind for each in dead})),
    )


def _candidates(shm: Path, alive: set[str], now_s: float) -> Iterator[_File]:
    """This user's files with such names that are not new and whose maker, if they tell one, is gone."""
    me = os.geteuid() if hasattr(os, "geteuid") else 0
    with os.scandir(shm) as entries:
        for number, entry in enumerate(entries):
            if number == _MOST_FILES:
                return
            match = _NAMES.match(entry.name)
            if match is None:
                continue
            try:
                stat = entry.stat(follow_symlinks=False)
            except OSError:  # it has gone since
                continue
            maker = match["torch"] or match["loky"] or match["openmp"]
            age_s = now_s - max(stat.st_mtime, stat.st_ctime)
            if (
                stat.st_uid == me
                and maker not in alive
                and age_s > (_NEW_S if maker else _NEW_UNSIGNED_S)
                and entry.is_file(follow_symlinks=False)
            ):
                # What it occupies: a file may be longer than what was written to it.
                size_bytes = min(stat.st_size, stat.st_blocks * 512)
                yield _File(entry.name, re.split(r"\d", match[0])[0], size_bytes, age_s)


def _used(names: set[str], proc: Path, alive: set[str], until_s: float) -> set[str] | None:
    """Return the names that a live process of this user maps or has open; None when that is not known."""
    me = os.geteuid() if hasattr(os, "geteuid") else 0
    used: set[str] = set()
    for pid in alive:
        if time.monotonic() > until_s:
            return None
        folder = proc / pid
        try:
            if os.stat(folder).st_uid != me:
                continue
            if (folder / "comm").read_text(errors="replace").strip() == _MANAGER:
                used |= {name for name in names if name.startswith("torch_")}
            used |= names.intersection(_mapped(folder))
            used |= names.intersection(_opened(folder))
        except (FileNotFoundError, ProcessLookupError):  # it has ended since
            continue
        except OSError:
            # Process 1 may be closed to this user. No training script is process 1's own.
            if pid != "1":
                return None
    return used


def _mapped(folder: Path) -> Iterator[str]:
    maps = (folder / "maps").read_text(errors="replace")
    return (found[1] for found in re.finditer(r"/dev/shm/(\S+)", maps))


def _opened(folder: Path) -> Iterator[str]:
    fds = folder / "fd"
    for fd in os.listdir(fds):
        try:
            target = os.readlink(fds / fd)
        except FileNotFoundError:
            continue
        if target.startswith("/dev/shm/"):
            yield target.removeprefix("/dev/shm/")
