"""Runs in the script that ``stoker advise`` runs: at the first ``iter()`` of a loader it forks a sandbox for the doctor.

So the doctor sees the loaders that the script really used, wherever they are made, and the script runs once.
"""

from __future__ import annotations

import functools
import hashlib
import os
import sys
import weakref
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader, get_worker_info

from stoker._host import memory_available
from stoker._record import journal
from stoker._record.call_site import place
from stoker._record.finding import size
from stoker._tools.profile import bootstrap
from stoker._tools.profile.torch_loader import install as measuring
from stoker._tools.sandbox.held import SOCKET

MOST_HELD = 3
"""Sandboxes of one run: each is a process with a copy of the script's memory."""
_MOST_OF_ROOM = 0.8
"""Of the memory that is left, how much the script may have for itself: all that it writes to from then on is copied."""

_places: dict[int, tuple[Any, tuple[str, int] | None]] = {}
"""Where loaders were made, by their ids: a weak reference that removes the entry, and the place."""
_hooked: set[Any] = set()


def install() -> None:
    """Look at all loaders that are made from now on. Idempotent."""
    if DataLoader in _hooked:
        return
    theirs: Any = DataLoader.__init__

    @functools.wraps(theirs)
    def hook(loader: Any, *args: Any, **kwargs: Any) -> None:
        theirs(loader, *args, **kwargs)
        key = id(loader)
        _places[key] = weakref.ref(loader, lambda _: _places.pop(key, None) and None), place(2)
        for each in type(loader).__mro__:
            if each.__module__ == "stoker.loader" and "__iter__" in vars(each):
                _hook_iter(each)

    kind: Any = DataLoader
    kind.__init__ = hook
    _hook_iter(DataLoader)


def _hook_iter(kind: Any) -> None:
    if kind in _hooked:
        return
    _hooked.add(kind)
    theirs: Any = kind.__iter__

    @functools.wraps(theirs)
    def hook(loader: Any) -> Any:
        _offer(loader)
        return theirs(loader)

    kind.__iter__ = hook


def _offer(loader: Any) -> None:
    """Have a sandbox of it, unless there is one or there are too many. What is ours may fail: the script goes on."""
    at = os.environ.get(SOCKET)
    if at is None or get_worker_info() is not None:
        return
    try:
        made_at = _places.get(id(loader), (None, None))[1]
        if _claimed(Path(at), made_at or (type(loader).__qualname__, 0)):
            _hold(loader, made_at, Path(at))
    except Exception as error:
        bootstrap.complain(f"the doctor cannot have this loader: {type(error).__name__}: {error}")


def _claimed(at: Path, made_at: tuple[str, int]) -> bool:
    """Whether this is the first loader of that line in all processes of the run, and one of the first few."""
    own = f"held-{hashlib.sha256(repr(made_at).encode()).hexdigest()[:16]}"
    try:
        held = [each for each in os.listdir(at.parent) if each.startswith("held-")]
        if own in held or len(held) >= MOST_HELD:
            return False
        os.close(os.open(at.parent / own, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    except OSError:  # another process was first, or the run is over
        return False
    return True


def _hold(loader: Any, made_at: tuple[str, int] | None, at: Path) -> None:
    from stoker._tools.doctor.probes import process
    from stoker._tools.sandbox import held
    from stoker._tools.sandbox.target import subject_of

    name = f"{os.path.basename(made_at[0])}:{made_at[1]}" if made_at else type(loader).__name__
    lacking = _lacking()
    if lacking:
        held.refuse(name, lacking, at)
        return
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    subject = subject_of(loader, name=name, file=file)
    held.hold(subject, process.probe(subject), at, functools.partial(_in_fork, loader, made_at))


def _lacking() -> str:
    """Why this process had better not be copied: ``""`` when there is room for it."""
    room = memory_available.room_bytes()
    try:
        resident, shared = map(int, Path("/proc/self/statm").read_text().split()[1:3])
    except (OSError, ValueError):
        return ""
    own = (resident - shared) * os.sysconf("SC_PAGE_SIZE")
    if room is None or own <= _MOST_OF_ROOM * room:
        return ""
    return f"the script has {size(own)} of its own, and there is no room for a copy in the {size(room)} that are left"


def _in_fork(loader: Any, made_at: tuple[str, int] | None) -> None:
    """The fork is nobody's script any more: nothing in it is measured, and what it starts is not followed."""
    for name in (SOCKET, journal.ENVIRONMENT, bootstrap.MODE, bootstrap.FOLLOW):
        os.environ.pop(name, None)
    measuring.uninstall()
    if made_at is not None:
        vars(loader)["_doctor_place"] = made_at
