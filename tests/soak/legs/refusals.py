"""The system refuses: no descriptor is left, no address space, files may not grow, a disk or /dev/shm is full.

Limits are lowered in the player itself, to a little more than what is in use, so each is hit at another place of ``iter``, ``next``
or the end. A full disk is a small file system of its own, in a mount namespace that the player enters first. A fault is an error
that came of it, or an epoch that came through nevertheless; where nothing was refused, nothing is counted. Afterwards, with the
limits of before, the same loader gives the epoch.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import stoker
from stoker._record import journal
from stoker.errors import StokerError
from tests.soak.account import Account
from tests.soak.accounting import accounted
from tests.soak.rows import Noisy, compare, loader_of, options_for, read

ROUNDS = 25
EPOCHS = 3
_POINTLESS = {
    ("descriptors", "inline"),
    ("address space", "inline"),
    ("address space", "thread"),
    ("file size", "inline"),
}
"""Without workers nothing is opened. A thread without the memory to begin leaves Python's ``Thread.start`` waiting."""
_NEW_MOUNTS = 0x00020000
_PRIVATE = 1 << 18 | 1 << 14
_SENTENCES = (OSError, StokerError, MemoryError, RuntimeError)


def unable() -> str:
    """Mounts need a namespace of their own, and so the rights for one. Entered here, once per player."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEW_MOUNTS) != 0 or libc.mount(b"none", b"/", None, _PRIVATE, None) != 0:
        return f"no mount namespace: {os.strerror(ctypes.get_errno())}"
    return ""


def play(seed: int) -> Account:
    """Play the scenario of this seed."""
    account = Account(seed)
    dice = Random(seed)
    account.where = where = dice.choices(("inline", "thread", "fork", "forkserver"), (3, 3, 3, 1))[0]
    what = dice.choice([each for each in LIMITS if (each, where) not in _POINTLESS])
    options = options_for(where, dice, workers=dice.choice((1, 2)))
    if what in ("descriptors", "address space"):
        options["persistent_workers"] = False  # there would be nothing to open in later epochs
    account.title = f"{what} {where} {options}"
    with accounted(account) as folder:
        _play(account, dice, LIMITS[what], what, options, folder, seed)
    return account


def _play(
    account: Account, dice: Random, limit: Any, what: str, options: dict[str, Any], folder: Path, seed: int
) -> None:
    cached = what == "disk" and dice.random() < 0.5
    dataset: Any = Noisy(24, noisy=account.where != "thread" and not cached)
    with loader_of(dataset, seed) as reference:
        expected = [read(reference, seed + epoch) for epoch in range(EPOCHS)]
    with small_disk(folder / "disk", 64 << 10) as disk:
        if cached:  # what has no room in the store is made each time
            dataset = stoker.cache(dataset, 1 << 20, path=disk / "store")
            what = "disk of a cache"
        elif what in ("disk", "file size"):
            options = {**options, "record": str(disk / "run.json")}
        with loader_of(dataset, seed, **options) as loader:
            for number in range(ROUNDS if account.where in ("inline", "thread") else ROUNDS // 3):
                epoch = number % EPOCHS
                refused = False
                found, told = None, ""
                with limit(dice, disk):
                    try:
                        found = read(loader, seed + epoch)
                    except _SENTENCES as error:
                        refused, told = True, str(error) and type(error).__name__
                if found is not None:
                    compare(account, found, expected[epoch], "under the limit")
                else:
                    account.faults[f"{what}: refused"] += 1
                    if not told:
                        account.find("raised", "an error without a sentence")
                if not refused:
                    account.faults[f"{what}: came through"] += _is_tight(what)
                after = (epoch + 1) % EPOCHS
                compare(account, read(loader, seed + after), expected[after], f"after {what}")
                if account.findings:
                    return
        del loader, reference, dataset
        if "record" in options and (disk / "run.json").exists():
            journal.read(disk / "run.json")


def _is_tight(what: str) -> int:
    """Disks and /dev/shm are full in any case; limits may have been higher than what was asked for."""
    return int(what in ("disk", "disk of a cache", "/dev/shm"))


@contextmanager
def lowered(name: int, value: int) -> Iterator[None]:
    """A limit of this process, for the block."""
    soft, hard = resource.getrlimit(name)
    resource.setrlimit(name, (min(value, soft) if soft != resource.RLIM_INFINITY else value, hard))
    try:
        yield
    finally:
        resource.setrlimit(name, (soft, hard))


def descriptors(dice: Random, disk: Path) -> Any:
    """Room for some more, and no further."""
    highest = max(int(each) for each in os.listdir("/proc/self/fd"))
    return lowered(resource.RLIMIT_NOFILE, highest + dice.randint(1, 10))


def address_space(dice: Random, disk: Path) -> Any:
    """Some MB more, and no further."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return lowered(
        resource.RLIMIT_AS, pages * mmap.PAGESIZE + dice.choice((0, 1 << 16, 1 << 20, 1 << 23, 1 << 26))
    )


def file_size(dice: Random, disk: Path) -> Any:
    """No file, and no memory that is a file, may grow beyond some kB."""
    return lowered(resource.RLIMIT_FSIZE, dice.choice((0, 4096, 1 << 16, 1 << 20)))


@contextmanager
def full(path: Path) -> Iterator[None]:
    """Fill a file system to its last byte for the block."""
    ballast = path / "ballast"
    fd = os.open(ballast, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC)
    try:
        for size in (1 << 16, 4096, 1):
            with contextlib.suppress(OSError):
                while os.write(fd, bytes(size)):
                    pass
        yield
    finally:
        os.close(fd)
        ballast.unlink()


@contextmanager
def small_disk(path: Path, size: int) -> Iterator[Path]:
    """A file system of this size, in this player's mount namespace only."""
    path.mkdir(exist_ok=True)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"tmpfs", os.fsencode(path), b"tmpfs", 0, f"size={size}".encode()) != 0:
        raise OSError(ctypes.get_errno(), "a tmpfs cannot be mounted")
    try:
        yield path
    finally:
        libc.umount2(os.fsencode(path), 2)


@contextmanager
def shared_memory(dice: Random, disk: Path) -> Iterator[None]:
    """/dev/shm is small and full."""
    with small_disk(Path("/dev/shm"), 1 << 16) as shm, full(shm):
        yield


LIMITS: dict[str, Callable[[Random, Path], Any]] = {
    "descriptors": descriptors,
    "address space": address_space,
    "file size": file_size,
    "disk": lambda dice, disk: full(disk),
    "/dev/shm": shared_memory,
}
