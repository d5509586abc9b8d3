"""Options and progress that ``stoker tune`` and ``stoker bench`` share."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from stoker.cli.exit_status import require, seconds

_Command = TypeVar("_Command", bound=Callable[..., Any])
_PAUSE_S = 2.0
"""Between two lines where standard error is no terminal."""
Tell = Callable[[str, float], None]
"""Called with what is done now, and the share of the time that is spent."""


def about_the_run(command: _Command) -> _Command:
    """The options that say what is to be run: batches, the step, ranks."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "--batch-size", type=click.IntRange(min=1), help="In place of the loader's own; a dataset has none."
    ),
    click.option(
        "--step-ms",
        type=click.FloatRange(min=0, min_open=True),
        callback=seconds,
        metavar="MS",
        help="Time of one training step, without waiting for data.",
    ),
    click.option(
        "--step", metavar="MODULE:FUNCTION", help="Your training step, a function of a batch: it is measured."
    ),
    click.option(
        "--record",
        type=click.Path(exists=True, path_type=Path),
        metavar="FILE",
        help="The record of a run, which knows what a step takes.",
    ),
    click.option(
        "--accumulate",
        type=click.IntRange(min=1),
        default=1,
        metavar="N",
        help="Batches that a step pulls back to back (gradient accumulation).",
    ),
    click.option(
        "--ranks",
        type=click.IntRange(min=1),
        metavar="N",
        help="Training processes on this machine. As the environment says, by default.",
    ),
)


def run_arguments(options: dict[str, Any]) -> dict[str, Any]:
    """These options as ``stoker.tune`` takes them. A usage error when they contradict each other."""
    given = [name for name in ("step_ms", "step", "record") if options[name] is not None]
    names = " and ".join(f"--{name.replace('_', '-')}" for name in given)
    require(len(given) > 1, f"{names} contradict each other: a step takes what it takes")
    step_ms, record = options["step_ms"], options["record"]
    return {
        "batch_size": options["batch_size"],
        "step": options["step"],
        "step_s": None if step_ms is None else step_ms / 1000,
        "record": None if record is None else str(record),
        "accumulate": options["accumulate"],
        "ranks": options["ranks"],
    }


@contextmanager
def progress(label: str) -> Iterator[Tell]:
    """A bar on standard error that goes when it is done; lines where that is no terminal."""
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield Lines().tell
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    bar = Progress(
        TextColumn(label),
        BarColumn(bar_width=24),
        TextColumn("{task.description}", markup=False),
        TimeElapsedColumn(),
        console=Console(stderr=True, no_color=bool(os.environ.get("NO_COLOR"))),
        transient=True,
    )
    with bar:
        task = bar.add_task("", total=1.0)

        def tell(what: str, share: float) -> None:
            bar.update(task, description=what, completed=max(0.0, min(1.0, share)))

        yield tell


class Lines:
    """What is being done, a line when that changes, but not more often than somebody could read."""

    def __init__(self) -> None:
        self._last = ""
        self._at = float("-inf")

    def tell(self, what: str, share: float) -> None:
        """Say it, or let it be."""
        now = time.monotonic()
        if what and what != self._last and now - self._at >= _PAUSE_S:
            self._last, self._at = what, now
            click.echo(f"[{max(0.0, min(1.0, share)):4.0%}] {what}", err=True)
