"""Reads one input under guard: its time, its memory, what it writes and unpickles, and what it raises.

The guard belongs to a process that does nothing else: it sets signal handlers and limits, and its audit hook stays for ever.
"""

from __future__ import annotations

import faulthandler
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

from tests.fuzz.format import Format

CPU_S = 5.0
"""The CPU time that one input may take."""
WALL_S = 60.0
_WATCH_S = 90.0
"""After this time with no sign of life the process ends: no signal handler can run in code that holds the interpreter."""
GROWTH_BYTES = 512 << 20
"""The address space that reading may take beyond what the process has at its beginning."""
_KEPT_BYTES = 96 << 20
"""The memory that may remain after all inputs of a campaign."""
_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_FORBIDDEN = {
    "pickle.find_class": "it unpickles",
    "subprocess.Popen": "it starts a program",
    "os.system": "it starts a program",
    "os.fork": "it forks",
    "os.exec": "it starts a program",
    "os.posix_spawn": "it starts a program",
    "socket.connect": "it opens a connection",
    "socket.bind": "it opens a port",
}
_CHANGING = {
    "os.mkdir": 0, "os.remove": 0, "os.rmdir": 0, "os.rename": 1, "os.symlink": 1, "os.link": 1, "os.truncate": 0, "os.chmod": 0,
    "os.chown": 0, "shutil.rmtree": 0, "os.utime": 0,
}  # fmt: skip
"""By audit event: which of its arguments is the path that is changed."""


def remove_folder_of(pid: int) -> None:
    """Remove the folder that a process left which was killed."""
    for each in Path(_base()).glob(f"stoker-fuzz-{pid}-*"):
        shutil.rmtree(each, ignore_errors=True)


def _base() -> str:
    return "/dev/shm" if os.path.isdir("/dev/shm") else tempfile.gettempdir()


class TooSlow(BaseException):
    """The input took more time than it may. No reader catches it."""


class Guard:
    """Reads inputs in a folder of its own, one after another. One per process, on its main thread."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=f"stoker-fuzz-{os.getpid()}-", dir=_base()))
        self.accepted = False
        """Whether the last input was read without an error."""
        self._inside = False
        self._offences: list[str] = []
        self._began_bytes = 0
        self._watched_s = 0.0
        sys.dont_write_bytecode = True  # modules that a reader imports late are no writing
        sys.addaudithook(self._watch)
        signal.signal(signal.SIGPROF, _too_slow)
        signal.signal(signal.SIGALRM, _too_slow)

    def warm(self, formats: list[Format]) -> None:
        """Read whole inputs, so that imports and caches are no growth. Then limit the address space."""
        for each in formats:
            for data in each.seeds:
                with suppress(*each.errors):
                    self._read(each, data)
                self._empty()
        size, _ = _memory()
        self._began_bytes = _memory()[1]
        resource.setrlimit(resource.RLIMIT_AS, (size + GROWTH_BYTES, resource.RLIM_INFINITY))

    def failure(self, kind: Format, data: bytes) -> str | None:
        """Read an input; say what is wrong with how it was read."""
        if time.monotonic() - self._watched_s > 5.0:
            self._watched_s = time.monotonic()
            faulthandler.dump_traceback_later(_WATCH_S, exit=True)
        self._offences.clear()
        self.accepted = False
        signal.setitimer(signal.ITIMER_PROF, CPU_S)
        signal.setitimer(signal.ITIMER_REAL, WALL_S)
        try:
            self._inside = True
            self._read(kind, data)
            self.accepted = True
        except kind.errors as error:
            if not str(error).strip():
                self._offences.append(f"{type(error).__name__} without a message")
        except MemoryError:
            self._offences.append(f"memory: more than {GROWTH_BYTES >> 20} MB\n{_shown()}")
        except TooSlow:
            self._offences.append(f"hang: more than {CPU_S:.0f} s\n{_shown()}")
        except KeyboardInterrupt:
            raise
        except BaseException:
            self._offences.append(f"traceback\n{_shown()}")
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.setitimer(signal.ITIMER_REAL, 0)
            self._inside = False
        self._empty()
        return "; ".join(dict.fromkeys(self._offences)) or None

    def growth(self) -> str | None:
        """Say whether all inputs together left too much memory in use."""
        kept = _memory()[1] - self._began_bytes
        return f"growth: {kept >> 20} MB remain in use" if kept > _KEPT_BYTES else None

    def close(self) -> None:
        """Remove the folder, and stop watching."""
        faulthandler.cancel_dump_traceback_later()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _read(self, kind: Format, data: bytes) -> None:
        with _standard_streams():
            kind.read(data, self.folder)

    def _empty(self) -> None:
        for each in os.scandir(self.folder):
            with suppress(FileNotFoundError):
                shutil.rmtree(each.path) if each.is_dir(follow_symlinks=False) else os.unlink(each.path)

    def _watch(self, event: str, arguments: tuple[Any, ...]) -> None:
        """The audit hook."""
        if not self._inside:
            return
        if event == "open":
            path, _, flags = arguments
            if isinstance(flags, int) and flags & _WRITE_FLAGS and not isinstance(path, int):
                self._see_change(event, path)
        elif event in _CHANGING:
            self._see_change(event, arguments[_CHANGING[event]])
        elif event in _FORBIDDEN:
            self._offences.append(f"{_FORBIDDEN[event]}: {arguments[:2]!r:.200}")

    def _see_change(self, event: str, path: Any) -> None:
        if isinstance(path, int):
            return
        place = os.path.abspath(os.fsdecode(path))
        if place.startswith("/proc/self/fd/"):  # opened once more
            place = os.path.realpath(place)
        if not place.startswith(f"{self.folder}/") and place not in (str(self.folder), "/dev/null"):
            self._offences.append(f"it writes outside of its folder: {event} {place!r:.200}")


def _too_slow(*_: object) -> NoReturn:
    raise TooSlow


def _shown() -> str:
    return "".join(traceback.format_exc(limit=-6)).strip()[-3000:]


def _memory() -> tuple[int, int]:
    """The address space and the resident memory of this process."""
    with open("/proc/self/statm") as text:
        size, resident, *_ = text.read().split()
    page = resource.getpagesize()
    return int(size) * page, int(resident) * page


@contextmanager
def _standard_streams() -> Iterator[None]:
    """What a reader prints goes nowhere."""
    before = sys.stdout, sys.stderr
    try:
        sys.stdout = sys.stderr = _NOWHERE
        yield
    finally:
        sys.stdout, sys.stderr = before


_NOWHERE = open(os.devnull, "w", encoding="utf-8", errors="replace")  # noqa: SIM115
