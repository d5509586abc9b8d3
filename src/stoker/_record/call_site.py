"""Finds the line of the user's script that made something: "train.py:31"."""

from __future__ import annotations

import os
import sys
import warnings
from types import FrameType

from stoker._host.code_location import is_installed, is_library, is_stoker

_TORCH = f"{os.sep}torch{os.sep}"
_MOST_FRAMES = 64


def site(depth: int = 1) -> str | None:
    """The line that led to this call, of a file that is no library. A few microseconds.

    When libraries call all the way, the first line outside torch, stoker and the standard library. ``depth`` frames are left
    out from the start.
    """
    found = place(depth + 1)
    if found is None:
        return None
    path, line = found
    return f"{os.path.basename(path) if is_installed(path) else _short(path)}:{line}"


def place(depth: int = 1) -> tuple[str, int] | None:
    """As ``site``: the file, as Python names it, and the line."""
    frame = _users_frame(depth + 1)
    return None if frame is None else (frame.f_code.co_filename, frame.f_lineno)


def warn(text: str, category: type[Warning]) -> None:
    """Warn at the user's line, as ``site`` finds it. Where there is none, at the caller of this function."""
    frame = _users_frame(2)
    if frame is None:
        warnings.warn(text, category, stacklevel=2)
        return
    module = frame.f_globals.get("__name__") or "<unknown>"
    registry = frame.f_globals.setdefault("__warningregistry__", {})
    warnings.warn_explicit(text, category, frame.f_code.co_filename, frame.f_lineno, module, registry)


def _users_frame(depth: int) -> FrameType | None:
    frame: FrameType | None = sys._getframe(depth)
    library: FrameType | None = None
    for _ in range(_MOST_FRAMES):
        if frame is None:
            break
        path = frame.f_code.co_filename
        if not is_library(path):
            return frame
        if library is None and is_installed(path) and not is_stoker(path) and _TORCH not in path:
            library = frame
        frame = frame.f_back
    return library


def _short(path: str) -> str:
    """As people name it: from the current folder, or the file alone."""
    try:
        here = os.path.join(os.getcwd(), "")
    except OSError:  # the folder is gone
        return os.path.basename(path)
    return path[len(here) :] if path.startswith(here) else os.path.basename(path)
