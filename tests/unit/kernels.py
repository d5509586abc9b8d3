"""A kernel's files, made for a test."""

from __future__ import annotations

from pathlib import Path


class Files:
    """A /proc and a /sys/fs/cgroup of our own."""

    def __init__(self, folder: Path) -> None:
        self.sys = folder / "sys"
        self.proc = folder / "proc"
        self.sys.mkdir()
        (self.proc / "self").mkdir(parents=True)

    def belongs_to(self, *lines: str) -> None:
        (self.proc / "self" / "cgroup").write_text("".join(f"{line}\n" for line in lines))
