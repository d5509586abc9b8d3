"""The folder for temporary files, where torch's workers have the sockets through which descriptors travel."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from stoker._host.kernel_files import space

SOCKET_BYTES = len("/pymp-xxxxxxxx/listener-xxxxxxxx")
"""What multiprocessing adds to the folder for a socket's path."""
LONGEST_PATH_BYTES = 107
"""Of a socket: the kernel has 108 bytes, the last of which is a zero."""
_VARIABLES = ("TMPDIR", "TEMP", "TMP")
_DEFAULTS = ("/tmp", "/var/tmp", "/usr/tmp")


@dataclass(frozen=True, slots=True)
class Tmpdir:
    """What is asked for, and what Python's ``tempfile`` takes: the first of its candidates that can be written to."""

    path: str
    """What the environment asks for; without that, the system's own folder."""
    variable: str
    """Which variable asks for it: "TMPDIR"; "" when none does."""
    exists: bool
    writable: bool
    length_bytes: int
    free_bytes: int | None
    used: str | None
    """The folder that is used in the end; None when there is none but the current one."""


def temporary_folder(environ: Mapping[str, str]) -> Tmpdir:
    """Look at it now, without writing anything. Never raises."""
    variable = next((name for name in _VARIABLES if environ.get(name)), "")
    asked = [os.path.abspath(environ[name]) for name in _VARIABLES if environ.get(name)]
    candidates = [*asked, *_DEFAULTS]
    path = candidates[0]
    return Tmpdir(
        path=path,
        variable=variable,
        exists=os.path.isdir(path),
        writable=_usable(path),
        length_bytes=len(os.fsencode(path)),
        free_bytes=space(path)[1],
        used=next(filter(_usable, candidates), None),
    )


def _usable(path: str) -> bool:
    return os.path.isdir(path) and os.access(path, os.W_OK | os.X_OK) and space(path)[1] != 0
