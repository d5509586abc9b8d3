"""Opens files for writing in folders that other users may write to as well.

There, another user can put a link, a pipe or a file of their own under a name that we are going to use. A link is followed only
if this user or root made it. A new file gets a random name, is made by us or not at all, and is moved into place. Any thread.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

_FLAGS = os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_TRIES = 8
_SHARED_FOLDERS = ("/dev/shm", "/var/tmp")
"""Other folders in which every user may make files."""


class FileIdentity(NamedTuple):
    """Which file this is, whatever its name."""

    device: int
    inode: int


def identity(fd: int) -> FileIdentity:
    """Return the identity of an open file."""
    facts = os.fstat(fd)
    return FileIdentity(facts.st_dev, facts.st_ino)


def private_folder(environ: Mapping[str, str]) -> Path:
    """The folder for files that processes of one user share: nobody else can enter it. Raises OSError if there is none.

    Another user may have taken the name in one place. All processes then find the next one.
    """
    user = os.geteuid()
    tried = []
    for place in _private_places(environ, user):
        with suppress(OSError):
            place.mkdir(mode=0o700)
        if _is_private(place, user):
            return place
        tried.append(str(place))
    raise PermissionError(
        errno.EPERM,
        f"no folder that only this user can enter: {', '.join(tried)} cannot be made, belong to others, or are open to them. "
        "Set XDG_RUNTIME_DIR to a folder with mode 700",
    )


def _private_places(environ: Mapping[str, str], user: int) -> Iterator[Path]:
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    if runtime and os.path.isabs(runtime) and _is_private(runtime, user):
        yield Path(runtime, "stoker")
        return
    for base in dict.fromkeys((tempfile.gettempdir(), *_SHARED_FOLDERS)):
        yield Path(base, f"stoker-{user}")


def temporary_folder(prefix: str) -> str:
    """Make a folder with a random name that only this user can enter. Raises OSError if there is no place for one."""
    return tempfile.mkdtemp(prefix=prefix, dir=temporary_base())


def temporary_base() -> str:
    """Where temporary folders are made. Raises OSError if there is no place for them.

    Not in a folder where others may rename ours and put theirs in its place: one that is not sticky, or that they own.
    """
    bases = dict.fromkeys((tempfile.gettempdir(), "/tmp", *_SHARED_FOLDERS))
    for base in bases:
        if keeps_names(base) and os.access(base, os.W_OK | os.X_OK):
            return base
    raise PermissionError(
        errno.EPERM,
        f"no temporary folder is safe from other users ({', '.join(bases)}): set TMPDIR to one of your own",
    )


def keeps_names(folder: str) -> bool:
    """Whether nobody but this user and root can rename what this user makes in a folder."""
    with suppress(OSError):
        facts = os.stat(folder)
        open_to_all = facts.st_mode & stat.S_IWOTH and not facts.st_mode & stat.S_ISVTX
        return facts.st_uid in (os.geteuid(), 0) and not open_to_all
    return False


def _is_private(path: str | Path, user: int) -> bool:
    with suppress(OSError):
        found = os.lstat(path)
        return stat.S_ISDIR(found.st_mode) and found.st_uid == user and not found.st_mode & 0o077
    return False


def followed(path: Path) -> Path:
    """The path without links. Raises PermissionError if its last part is a link that another user made."""
    for _ in range(40):
        try:
            facts = path.lstat()
        except OSError:
            break
        if not stat.S_ISLNK(facts.st_mode):
            break
        if facts.st_uid not in (os.geteuid(), 0):
            raise PermissionError(errno.EPERM, "this is a link that another user made", str(path))
        if path.parent.resolve() == Path("/proc/self/fd") or str(path).startswith("/dev/"):
            return path  # /dev/stdout: what it stands for has no name
        path = path.parent / path.readlink()
    return path.parent.resolve() / path.name


def open_append(path: str | os.PathLike[str], *, known: FileIdentity | None = None) -> int:
    """A descriptor that adds to a file; a new one is private to the user. ``known`` is a file that we made before.

    Raises PermissionError for a file of another user. A pipe or device is written to as it is.
    """
    place = followed(Path(path))
    for _ in range(_TRIES):
        with suppress(FileExistsError):
            return os.open(place, _FLAGS | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            fd = _opened(place, os.O_APPEND)
        except FileNotFoundError:  # it went meanwhile
            continue
        try:
            _require_ours(fd, place, known)
        except BaseException:
            os.close(fd)
            raise
        return fd
    raise FileExistsError(errno.EEXIST, "other processes keep making and removing it", str(place))


def write_file(path: Path, data: bytes, *, mode: int = 0o666) -> None:
    """Write a file that the user named, in place of what it held; behind a link of the user's own, the file it leads to.

    Raises OSError, also for another user's link, pipe, and file in a folder like /tmp: they would see what we write.
    """
    place = followed(path)
    try:
        fd = os.open(place, _FLAGS | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError:
        fd = _open_to_overwrite(place)
    with os.fdopen(fd, "wb") as file:
        file.write(data)


def open_stream(path: Path) -> int:
    """A descriptor of a pipe or device that is there already. Raises OSError for a file, which a link may have become."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC | (0 if path.is_symlink() else os.O_NOFOLLOW))
    if stat.S_ISREG(os.fstat(fd).st_mode) and not path.is_symlink():
        os.close(fd)
        raise FileExistsError(errno.EEXIST, "a file came in the place of a pipe or device", str(path))
    return fd


@contextmanager
def replacing(path: Path, *, mode: int = 0o600) -> Iterator[int]:
    """A descriptor of a fresh file that takes the place of ``path`` when the block ends well, and vanishes otherwise.

    The block does not close it. ``path`` has no links any more (``followed``).
    """
    for _ in range(_TRIES):
        fresh = path.with_name(f".{path.name[:200]}.{secrets.token_hex(8)}")
        with suppress(FileExistsError):
            fd = os.open(fresh, _FLAGS | os.O_CREAT | os.O_EXCL, mode)
            break
    else:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(fresh))
    try:
        try:
            yield fd
        finally:
            os.close(fd)
        os.replace(fresh, path)
    except BaseException:
        with suppress(OSError):
            fresh.unlink()
        raise


def _open_to_overwrite(place: Path) -> int:
    if place.is_symlink():  # of /dev or /proc
        return os.open(place, os.O_WRONLY | os.O_CLOEXEC | os.O_TRUNC)
    if not place.is_file():
        _require_own_stream(place)
        return open_stream(place)
    fd = _opened(place, 0)
    try:
        facts, folder = os.fstat(fd), place.parent.stat()
        shared = folder.st_mode & stat.S_ISVTX and folder.st_mode & stat.S_IWOTH
        if shared and facts.st_uid not in (os.geteuid(), folder.st_uid):
            raise PermissionError(errno.EPERM, "this file belongs to another user", str(place))
        os.ftruncate(fd, 0)
        os.set_blocking(fd, True)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _require_own_stream(place: Path) -> None:
    """Raises PermissionError for a pipe of another user: opening it may wait for a reader that never comes."""
    facts = place.lstat()
    if stat.S_ISFIFO(facts.st_mode) and facts.st_uid not in (os.geteuid(), 0):
        raise PermissionError(errno.EPERM, "this pipe belongs to another user", str(place))


def _opened(place: Path, flags: int) -> int:
    if place.is_symlink():  # of /dev or /proc
        return os.open(place, os.O_WRONLY | os.O_CLOEXEC | flags)
    return os.open(place, _FLAGS | flags)


def _require_ours(fd: int, place: Path, known: FileIdentity | None) -> None:
    """Raises PermissionError. Another user's file would show them what we write."""
    facts = os.fstat(fd)
    if stat.S_ISREG(facts.st_mode):
        if facts.st_uid != os.geteuid() and identity(fd) != known:
            raise PermissionError(errno.EPERM, "this file belongs to another user", str(place))
    else:
        os.set_blocking(fd, True)  # it was only not to wait for a reader that never comes
