"""Facts that every tool tells of a target in the same way: its engine, its length, where its loader was made."""

from __future__ import annotations

import ast
import os
from typing import Any, NamedTuple


class Site(NamedTuple):
    """The place in the user's code that made a loader."""

    file: str
    line: int

    @property
    def path(self) -> str:
        """The file as a path that can be opened from any folder."""
        return os.path.abspath(self.file)

    def __str__(self) -> str:
        """ "train.py:31", relative to the working folder where the file lies below it."""
        near = os.path.relpath(self.file)
        return f"{os.path.basename(self.file) if near.startswith('..') else near}:{self.line}"


def site(loader: Any) -> Site | None:
    """Where a loader was made: noted when the target was loaded, or by stoker's loader itself. None if it was not noted."""
    noted = getattr(loader, "_doctor_place", None)
    if noted:
        return Site(*noted)
    path, _, line = (getattr(loader, "_site", None) or "").rpartition(":")
    return Site(path, int(line)) if os.path.isfile(path) and line.isdigit() else None


def engine(loader: Any) -> str:
    """ "stoker" or "torch"; a subclass counts as what it is derived from, and no loader as torch's."""
    return "stoker" if any(base.__module__ == "stoker.loader" for base in type(loader).__mro__) else "torch"


def length_of(thing: Any) -> int | None:
    """``len(thing)``; None when it has none, or the user's raises."""
    try:
        return len(thing)
    except Exception:
        return None


def whole(number: Any) -> int | None:
    """An argument as the plain number it is: stoker's remember by their type that they were left open."""
    return None if number is None else int(number)


def has_own_collate(loader: Any) -> bool:
    """Whether ``collate_fn`` is the user's."""
    from torch.utils.data._utils.collate import default_collate, default_convert

    return loader.collate_fn not in (default_collate, default_convert)


def imported_at(made: Site) -> str | None:
    """The line that imports DataLoader by its name into the file that makes a loader, "train.py:3"; None without one."""
    try:
        with open(made.path, "rb") as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError):
        return None
    lines = [
        each.lineno
        for each in ast.walk(tree)
        if isinstance(each, ast.ImportFrom) and any(alias.name == "DataLoader" for alias in each.names)
    ]
    return str(Site(made.file, min(lines))) if lines else None


def kept_arguments(loader: Any) -> tuple[str, ...]:
    """What a call that makes such a loader has to say beside its setting. Objects stand by the argument's name."""
    from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler

    sampler, batches = getattr(loader, "sampler", None), getattr(loader, "batch_sampler", None)
    found = []
    if batches is not None and type(batches) is not BatchSampler:
        found.append("batch_sampler=batch_sampler")
    elif (
        type(sampler) is RandomSampler
        and not sampler.replacement
        and len(sampler) == length_of(loader.dataset)
    ):
        found.append("shuffle=True")
    elif isinstance(sampler, RandomSampler) or (
        type(sampler) is not SequentialSampler and not hasattr(type(loader.dataset), "__iter__")
    ):
        found.append("sampler=sampler")
    if getattr(loader, "drop_last", False):
        found.append("drop_last=True")
    if has_own_collate(loader):
        found.append("collate_fn=collate_fn")
    found += [
        f"{name}={name}"
        for name in ("worker_init_fn", "generator")
        if getattr(loader, name, None) is not None
    ]
    return tuple(found)
