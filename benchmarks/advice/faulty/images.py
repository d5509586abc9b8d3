"""The folder of pictures that most faults are added to."""

from __future__ import annotations

from benchmarks.advice.files import folder
from benchmarks.advice.healthy import FolderImages


class Images(FolderImages):
    """The folder of pictures; a fault is added below."""

    def __init__(self) -> None:
        super().__init__(folder() / "pictures")
