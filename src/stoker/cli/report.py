"""``stoker report``: says what a run record shows, again and without running anything."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from stoker.errors import RecordError


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
def command(
    paths: tuple[Path, ...], as_json: bool, price_per_hour: float | None, watts: float | None
) -> None:
    """Say what a run record shows: files, or folders of them (processes and loaders of one run)."""
    try:
        verdict = _judged(paths, price_per_hour=price_per_hour, watts=watts)
    except RecordError as error:
        click.echo(f"stoker report: {error}", err=True)
        sys.exit(2)
    from stoker.report import screen

    if as_json:
        click.echo(json.dumps(screen.as_json(verdict), default=repr))
    else:
        screen.show(verdict)


def _judged(paths: tuple[Path, ...], **prices: float | None) -> Any:
    """The verdict of a run's records. Raises RecordError."""
    from stoker._metrics import journal
    from stoker.report.verdict import judge

    return judge(journal.merged([journal.read(path) for path in paths]), **prices)
