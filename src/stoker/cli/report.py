"""``stoker report``: says what a run record shows, again and without running anything."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stoker.errors import RecordError

if TYPE_CHECKING:
    from stoker._metrics.record import RunRecord


@click.command()
@click.argument("paths", metavar="PATH…", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Write the verdict as JSON.")
@click.option(
    "--price-per-hour",
    type=click.FloatRange(min=0),
    metavar="PRICE",
    help="What an hour of this job costs: idle time as money.",
)
@click.option(
    "--watts", type=click.FloatRange(min=0), help="What this job's accelerators draw: idle time as energy."
)
@click.option(
    "--trace",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="OUT",
    help="Also write a trace that Perfetto opens.",
)
@click.option("--force", is_flag=True, help="Write over a trace that is there already.")
def command(
    paths: tuple[Path, ...],
    as_json: bool,
    price_per_hour: float | None,
    watts: float | None,
    trace: Path | None,
    force: bool,
) -> None:
    """Say what a run record shows: files, or folders of them (processes and loaders of one run)."""
    try:
        record = _read(paths)
        if trace is not None:
            _trace(record, trace, force=force)
    except RecordError as error:
        click.echo(f"stoker report: {error}", err=True)
        sys.exit(2)
    from stoker.report import screen
    from stoker.report.verdict import judge

    verdict = judge(record, price_per_hour=price_per_hour, watts=watts)
    if as_json:
        click.echo(json.dumps(screen.as_json(verdict), default=repr))
    else:
        screen.show(verdict)


def _read(paths: tuple[Path, ...]) -> RunRecord:
    """One run of all that was given. Raises RecordError."""
    from stoker._metrics import journal

    return journal.merged([journal.read(path) for path in paths])


def _trace(record: RunRecord, path: Path, *, force: bool) -> None:
    from stoker.report.trace import write

    try:
        write(record, path, force=force)
    except FileExistsError as error:
        raise RecordError(f"{path} exists: pass --force to write over it") from error
    except OSError as error:
        raise RecordError(f"cannot write {path}: {error.strerror or error}") from error
