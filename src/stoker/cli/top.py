"""``stoker top``: watches the loaders of this user's processes, from outside and without their help."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

import click

from stoker._tools.render.terminal import NARROWEST, known_width
from stoker._tools.top.lines import TopLine, board, broken, folded
from stoker._tools.top.live import LoaderLive, document, live
from stoker._tools.top.processes import ProcessScan, belongs, scan

_GLANCE_S = 0.25
"""Between the two scans that shares of workers come from, when there is to be one answer."""
_HOW = (
    "torch's own loaders are seen when their script was started with `stoker profile train.py`, "
    "stoker's always: `stoker run train.py` puts them in their place"
)
_PLAIN_WORKERS = 4
_ONCE_WORKERS = 16
_STYLES = {"head": "bold", "alarm": "yellow", "detail": "dim", "worker": ""}


@dataclass(frozen=True, slots=True)
class _Moment:
    scan: ProcessScan
    loaders: list[LoaderLive]


@click.command()
@click.option("--once", is_flag=True, help="Look once and exit. Exit code 1 if no loader runs.")
@click.option(
    "--json", "as_json", is_flag=True, help="JSON: one document with --once, otherwise one line per interval."
)
@click.option("--pid", type=click.IntRange(min=1), help="Only this process and those it started.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1),
    default=1.0,
    show_default=True,
    help="Seconds between two looks.",
)
@click.option(
    "-v", "--verbose", is_flag=True, help="Show all workers, and processes that could not be inspected."
)
def command(once: bool, as_json: bool, pid: int | None, interval: float, verbose: bool) -> None:
    """Watch the loaders that are running now: what they wait for, and what every worker is doing."""
    if not os.path.exists("/proc/self/fd"):
        raise click.ClickException("running loaders are found through /proc, which this system does not have")
    if pid is not None and not os.path.exists(f"/proc/{pid}"):
        raise click.ClickException(f"there is no process {pid}")
    try:
        if once:
            _once(as_json, pid, verbose)
        elif as_json:
            for moment in _moments(interval, pid):
                click.echo(json.dumps(_document(moment), separators=(",", ":")))
        elif sys.stdout.isatty():
            _watch(interval, pid, verbose)
        else:
            _print(interval, pid, verbose)
    except KeyboardInterrupt:
        return


def _moments(interval_s: float, pid: int | None) -> Iterator[_Moment]:
    """One after another, until the process that was asked for has ended."""
    before = scan()
    time.sleep(min(_GLANCE_S, interval_s))
    while True:
        now = scan()
        found = live(now, before)
        if pid is not None:
            found = [each for each, seen in zip(found, now.loaders, strict=True) if belongs(pid, seen)]
        yield _Moment(now, found)
        if pid is not None and not os.path.exists(f"/proc/{pid}"):
            return
        before = now
        time.sleep(interval_s)


def _once(as_json: bool, pid: int | None, verbose: bool) -> None:
    moment = next(_moments(_GLANCE_S, pid))
    if as_json:
        click.echo(json.dumps(_document(moment), indent=2))
    else:
        _put(_lines(moment, verbose, None if verbose else _ONCE_WORKERS))
    if not moment.loaders:
        raise SystemExit(1)


def _print(interval_s: float, pid: int | None, verbose: bool) -> None:
    """Lines for a file or a pipe."""
    for moment in _moments(interval_s, pid):
        click.echo(time.strftime("%H:%M:%S"))
        _put(_lines(moment, verbose, None if verbose else _PLAIN_WORKERS))


def _put(lines: list[TopLine]) -> None:
    """Broken at the width of a terminal; for a file or a pipe as they are."""
    width = known_width(sys.stdout)
    for line in lines:
        for each in [line] if width is None else broken(line, max(width, NARROWEST)):
            click.echo(each.text)


def _watch(interval_s: float, pid: int | None, verbose: bool) -> None:
    """A screen that is drawn anew."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console()
    with Live(console=console, screen=True, auto_refresh=False) as screen:
        for moment in _moments(interval_s, pid):
            lines = _fitted(moment, verbose, console.size.width, console.size.height)
            text = Text("\n", no_wrap=True, overflow="ellipsis").join(
                Text(line.text, style=_STYLES.get(line.kind, "")) for line in lines
            )
            screen.update(text, refresh=True)


def _fitted(moment: _Moment, verbose: bool, width: int, height: int) -> list[TopLine]:
    """Return the lines, with as many workers of every loader as the screen has room for."""
    most = None if verbose else height
    while True:
        lines = [part for line in _lines(moment, verbose, most) for part in folded(line, width)]
        over = len(lines) - height
        if not most or over <= 0:
            return lines
        most = max(0, min(most - 1, most - over // max(1, len(moment.loaders))))


def _lines(moment: _Moment, verbose: bool, most_workers: int | None) -> list[TopLine]:
    lines = [line for loader in moment.loaders for line in board(loader, most_workers)]
    if not moment.loaders:
        lines.append(TopLine("head", "no loader of this user's processes is running"))
        lines.append(TopLine("detail", _HOW))
    if verbose:
        lines += [TopLine("detail", f"skipped: {text}") for text in moment.scan.skipped]
    elif not moment.loaders and moment.scan.skipped:
        number = len(moment.scan.skipped)
        lines.append(TopLine("detail", f"{number} processes could not be looked into; -v says which and why"))
    return lines


def _document(moment: _Moment) -> dict[str, object]:
    return document(moment.loaders, moment.scan.skipped, at_unix_s=time.time())
