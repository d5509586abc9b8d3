"""Files and folders of this machine that the dataset names."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HeldPath:
    """A path that exists here. ``at`` is what a user would write: "dataset.root"."""

    at: str
    path: str
    count: int = 1
    """How many existing paths the same container holds; ``path`` is the first."""


@dataclass(frozen=True, slots=True)
class PathFacts:
    """The paths, the ones closest to the dataset first. ``complete``: whether everything was looked at."""

    paths: tuple[HeldPath, ...] = ()
    complete: bool = True
