"""The files behind stores: nameless shared memory, or a private file in a private folder. Nothing of other users is opened."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MEMORY_PREFIX = "stoker-cache-"
_SUFFIX = ".samples"
_LINK = "/memfd:" + MEMORY_PREFIX


class Backing:
    """An open file of a store. The owner closes it. ``shown`` is its name in messages."""

    def __init__(self, fd: int, shown: str, path: Path | None = None) -> None:
        self.fd = fd
        self.shown = shown
        self.path = path
        self.boot = boot_number()

    def reopen(self, flags: int) -> int:
        """Return another description of the same file, whatever became of its name."""
        return os.open(f"/proc/self/fd/{self.fd}", flags | os.O_CLOEXEC)

    def close(self) -> None:
        """Close the descriptor. Idempotent."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)


def create_memory(token: str) -> Backing:
    """Create nameless shared memory that can grow and never shrinks: a page that was there stays."""
    fd = os.memfd_create(MEMORY_PREFIX + token, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with suppress(OSError):
        os.fchmod(fd, 0o600)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    return Backing(fd, token)


def find_memory(
    token: str, hint: tuple[int, int] | None = None, *, accepts: Callable[[int], bool] = lambda fd: True
) -> Backing | None:
    """Return the shared memory of this name that another process of this user has open; None without one.

    ``hint`` is a process and its descriptor, looked at first. What ``accepts`` refuses, given a descriptor, is passed over.
    """
    wanted = f"{_LINK}{token} (deleted)"
    if hint is not None:
        found = _opened(f"/proc/{hint[0]}/fd/{hint[1]}", wanted, accepts)
        if found is not None:
            return Backing(found, token)
    user = os.geteuid()
    for folder in _processes(user):
        with suppress(OSError):
            for name in os.listdir(folder):
                found = _opened(f"{folder}/{name}", wanted, accepts)
                if found is not None:
                    return Backing(found, token)
    return None


def _processes(user: int) -> Iterator[str]:
    """The descriptor folders of this user's processes."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            folder = f"/proc/{name}/fd"
            with suppress(OSError):
                if os.stat(folder).st_uid == user:
                    yield folder


def _opened(link: str, wanted: str, accepts: Callable[[int], bool]) -> int | None:
    """Open what a link of /proc stands for, if it is ours, has this name, and is accepted."""
    try:
        if os.readlink(link) != wanted:
            return None
        fd = os.open(link, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    facts = os.fstat(fd)
    ours = facts.st_uid == os.geteuid() and stat.S_ISREG(facts.st_mode) and not facts.st_nlink
    if ours and accepts(fd):
        return fd
    os.close(fd)
    return None


def file_in(folder: Path, label: str) -> Path:
    """Return the path of the store with this label."""
    return folder / (label + _SUFFIX)


def private_folder(folder: Path) -> Path:
    """Return the folder, made if necessary. Raises PermissionError unless it belongs to this user and nobody else can enter."""
    with suppress(FileExistsError):
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700)
    facts = os.lstat(folder)
    if not stat.S_ISDIR(facts.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, "a sample cache needs a folder of its own", str(folder))
    if facts.st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, "this folder belongs to another user", str(folder))
    if facts.st_mode & 0o077:
        # One that all may write to, such as /tmp, is not this user's to close.
        what = (
            f'give one inside it: path="{folder / "samples"}"'
            if facts.st_mode & 0o022
            else f"type: chmod 700 {folder}"
        )
        raise PermissionError(
            errno.EPERM,
            f"other users may enter this folder (mode {facts.st_mode & 0o777:o}); {what}",
            str(folder),
        )
    return folder


def open_file(path: Path) -> Backing | None:
    """Open an existing store; None without one. Raises PermissionError for a file that others own or may read."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise PermissionError(
                errno.EPERM, "this is a link; a sample cache opens none", str(path)
            ) from error
        raise
    facts = os.fstat(fd)
    if stat.S_ISREG(facts.st_mode) and facts.st_uid == os.geteuid() and not facts.st_mode & 0o077:
        return Backing(fd, str(path), path)
    os.close(fd)
    raise PermissionError(
        errno.EPERM, "this file is not private to this user; remove it, or use another folder", str(path)
    )


@contextmanager
def new_file(path: Path) -> Iterator[Backing]:
    """Create a file that takes the place of ``path`` when the block ends well, and vanishes otherwise.

    It has no name until then, where the file system can do that: a process that is killed leaves nothing.
    """
    fresh = path.with_name(_unfinished(path) + secrets.token_hex(8))
    fd = _nameless(path.parent)
    named = fd < 0
    if named:
        fd = os.open(fresh, os.O_RDWR | os.O_CLOEXEC | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    backing = Backing(fd, str(path), path)
    try:
        yield backing
        if not named:
            try:
                _link(fd, path)
                return
            except FileExistsError:
                named = True
                _link(fd, fresh)
        os.replace(fresh, path)
    except BaseException:
        backing.close()
        if named:
            with suppress(OSError):
                fresh.unlink()
        raise


def _unfinished(path: Path) -> str:
    """How the name of a file begins that is not whole yet."""
    return f".{path.name[:100]}."


def remove_unfinished(path: Path) -> None:
    """Remove what killed processes left of files that were to take this place. Called with the lock of the store."""
    prefix = _unfinished(path)
    for each in path.parent.iterdir():
        if each.name.startswith(prefix):
            with suppress(OSError):
                each.unlink()


def _nameless(folder: Path) -> int:
    """Open a file without a name; -1 if the file system, or the system, has none."""
    try:
        return os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except (AttributeError, OSError):
        return -1


def _link(fd: int, path: Path) -> None:
    """Give it a name. Raises FileExistsError if that is taken."""
    os.link(f"/proc/self/fd/{fd}", path, src_dir_fd=fd)  # which makes Python follow the link of /proc


def boot_number() -> int:
    """Return a number of this boot of the machine, never 0."""
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            return zlib.crc32(file.read()) or 1
    except OSError:
        return 1
