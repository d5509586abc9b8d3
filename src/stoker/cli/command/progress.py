"""What a command does now: a bar on standard error, or lines where that is no terminal."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import Console

_PAUSE_S = 2.0
"""Between two lines where standard error is no terminal."""
Tell = Callable[[str, float], None]
"""Called with what is done now, and the share of the time that is spent."""


def has_bar() -> bool:
    """Whether standard error is a terminal that can draw one."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def console() -> Console:
    """Where bars are drawn."""
    from rich.console import Console

    return Console(stderr=True, no_color=bool(os.environ.get("NO_COLOR")))


@contextmanager
def progress(label: str, *, wide: int = 24) -> Iterator[Tell]:
    """A bar on standard error that goes when it is done; lines where that is no terminal."""
    if not has_bar():
        yield Lines().tell
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    bar = Progress(
        TextColumn(label),
        BarColumn(bar_width=wide),
        TextColumn("{task.description}", markup=False),
        TimeElapsedColumn(),
        console=console(),
        transient=True,
    )
    with bar:
        task = bar.add_task("", total=1.0)

        def tell(what: str, share: float) -> None:
            bar.update(task, description=what, completed=max(0.0, min(1.0, share)))

        yield tell


class Lines:
    """Shows progress: a line when it changes, but not more often than a person can read."""

    def __init__(self) -> None:
        self._last = ""
        self._at = float("-inf")

    def tell(self, what: str, share: float) -> None:
        """Say it, or let it be."""
        now = time.monotonic()
        if what and what != self._last and now - self._at >= _PAUSE_S:
            self._last, self._at = what, now
            click.echo(f"[{max(0.0, min(1.0, share)):4.0%}] {what}", err=True)
