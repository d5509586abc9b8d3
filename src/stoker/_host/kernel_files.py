"""Reads small files of the kernel, and what it says of a file system. Unknown values are "" or None; nothing here raises."""

from __future__ import annotations

import os
from pathlib import Path


def text(file: Path) -> str:
    """Return all of a file, "" where it cannot be read."""
    try:
        return file.read_text(errors="replace")
    except (OSError, ValueError):
        return ""


def number(file: Path) -> int | None:
    """The number in a file; None for "max", and where there is none."""
    try:
        return int(text(file))
    except ValueError:
        return None


def keyed_number(file: Path, key: str) -> int | None:
    """The number behind a key, which is the first word of its line; None where there is none."""
    for line in text(file).splitlines():
        words = line.split()
        if words and words[0] == key:
            try:
                return int(words[1])
            except (ValueError, IndexError):
                return None
    return None


def space(folder: str | Path) -> tuple[int | None, int | None]:
    """Size and free bytes of the file system that a folder lies on."""
    try:
        found = os.statvfs(folder)
    except (OSError, AttributeError, ValueError):
        return None, None
    return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
