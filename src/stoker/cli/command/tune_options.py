"""Options that ``stoker tune`` and ``stoker bench`` share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from stoker.cli.command.exit_status import finite, require

_Command = TypeVar("_Command", bound=Callable[..., Any])


def about_the_run(command: _Command) -> _Command:
    """The options that say what is to be run: batches, the step, ranks."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "--batch-size",
        type=click.IntRange(min=1),
        help="Use this instead of the loader's own; 32 by default for a dataset.",
    ),
    click.option(
        "--step-ms",
        type=click.FloatRange(min=0, min_open=True),
        callback=finite,
        metavar="MS",
        help="Time of one training step, without waiting for data.",
    ),
    click.option(
        "--step", metavar="MODULE:FUNCTION", help="Your training step, a function of a batch. It is measured."
    ),
    click.option(
        "--record",
        type=click.Path(exists=True, path_type=Path),
        metavar="FILE",
        help="Take the time of a step from this run record.",
    ),
    click.option(
        "--accumulate",
        type=click.IntRange(min=1),
        default=1,
        metavar="N",
        help="Batches that a step takes at once (gradient accumulation).",
    ),
    click.option(
        "--ranks",
        type=click.IntRange(min=1),
        metavar="N",
        help="Training processes on this machine. Read from the environment by default.",
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
