"""Tells which memory of this process is backed by a file, so that the kernel can drop it and read it again."""

from __future__ import annotations

from bisect import bisect_right


class Maps:
    """The mapped files of this process, read at the first question."""

    def __init__(self) -> None:
        self._starts: list[int] | None = None
        self._ends: list[int] = []

    def is_file(self, address: int) -> bool:
        """Whether this address lies in a mapping of a file on a disk. False if unknown."""
        if not address:
            return False
        if self._starts is None:
            self._read()
        assert self._starts is not None
        at = bisect_right(self._starts, address) - 1
        return at >= 0 and address < self._ends[at]

    def _read(self) -> None:
        self._starts = []
        try:
            with open("/proc/self/maps", encoding="utf-8", errors="replace") as lines:
                for line in lines:
                    fields = line.split(maxsplit=5)
                    path = fields[5].strip() if len(fields) == 6 else ""
                    if path.startswith("/") and not path.startswith(("/dev/shm/", "/memfd:", "/dev/zero")):
                        start, _, end = fields[0].partition("-")
                        self._starts.append(int(start, 16))
                        self._ends.append(int(end, 16))
        except OSError:
            return
