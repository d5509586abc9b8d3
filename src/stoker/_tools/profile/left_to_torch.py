"""Says which loaders ``stoker run`` leaves to torch, and why: once in the log, and in the folder of the records for the summary."""

from __future__ import annotations

import contextlib
import logging
import os

from stoker._host.private_files import open_append
from stoker._record import journal

SUFFIX = ".left.txt"

_log = logging.getLogger("stoker")
_reported: set[tuple[str, str]] = set()


def leave(cls: type, why: str) -> None:
    """Loaders of this class stay torch's. Said once per class and process."""
    name = f"{cls.__module__}.{cls.__qualname__}"
    if (name, why) in _reported:
        return
    _reported.add((name, why))
    line = f"loaders of {name} stay torch's: {why}"
    _log.warning("%s", line)
    folder = journal.sink_from_environment()
    if folder is not None:
        with contextlib.suppress(OSError), open(open_append(folder / f"{os.getpid()}{SUFFIX}"), "a") as file:
            file.write(line + "\n")
