"""Finds the cgroup directories that limit this process, its own and all above it, in version 2 and version 1."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

SYS = Path("/sys/fs/cgroup")
PROC = Path("/proc")


def folders(controller: str, *, sys: Path = SYS, proc: Path = PROC) -> Iterator[tuple[Path, int]]:
    """The folders of this process's cgroup for a controller, innermost first, each with the version of its files. Never raises."""
    try:
        lines = (proc / "self" / "cgroup").read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return
    for line in lines:
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if controller in names.split(","):
            root, version = sys / controller, 1
            if not _is_dir(root):
                root = sys / names  # mounted together with others, and without a link of its own
        elif number == "0":
            root, version = sys, 2
        else:
            continue
        folder = root / path.strip("/")
        while True:
            # Inside a container the path may be the host's, of which only the end or nothing is visible.
            if _is_dir(folder):
                yield folder, version
            if folder == root or root not in folder.parents:
                break
            folder = folder.parent


def _is_dir(path: Path) -> bool:
    """``Path.is_dir`` raises where it may not look, or where the name is too long."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False
