"""``stoker demo``: shows on this machine what a loader costs, why, and what stoker changes."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from stoker.cli.command import output_file, output_form
from stoker.cli.command.exit_status import INTERRUPTED, deliver, require, require_new, tidy_ends
from stoker.cli.command.progress import Lines, Tell, console, has_bar
from stoker.cli.command.shared_options import json_option, output_option

_PAGE = Path("stoker-report.html")
_FAILED = 1


@click.command()
@click.option("--quick", is_flag=True, help="Measure less: under 40 seconds.")
@click.option("--only", multiple=True, metavar="ACT", help="Run only this act; may be repeated.")
@click.option("--list", "listed", is_flag=True, help="List the acts with their times.")
@output_option(
    f"Where the page goes, or the report as .md, .txt or .json. Default: {_PAGE}, or the next number if it exists."
)
@json_option
@click.option(
    "--record",
    "kept",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Also write all measurements as JSON, for `stoker report`.",
)
@click.option("--force", is_flag=True, help="Overwrite existing files.")
def command(
    quick: bool,
    only: tuple[str, ...],
    listed: bool,
    output: Path | None,
    as_json: bool,
    kept: Path | None,
    force: bool,
) -> None:
    """Show on built-in data what a loader costs on this machine, why, and what stoker changes.

    The acts run one after the other, in about 3 minutes; with --quick in 40 seconds. The command prints a summary and writes a
    page with charts. After Ctrl-C you get what was measured so far.

    Exit code: 0, 1 when an act failed, 2 when an option is wrong or a file cannot be written, 130 after Ctrl-C.
    """
    from stoker._tools.demo import runner
    from stoker._tools.render.terminal import width_of

    acts = runner.known()
    unknown = [each for each in only if each not in acts]
    require(bool(unknown), f"there is no act {', '.join(unknown)}: {', '.join(acts)}")
    if listed:
        for name, act in acts.items():
            asked = "  (only with --only)" if name in runner.ASKED_FOR else ""
            line = f"{name:8}  {act.SECONDS[0]:3.0f} s  {act.SECONDS[1]:3.0f} s  {act.TITLE}{asked}"
            click.echo("\n".join(textwrap.wrap(line, width_of(sys.stdout), subsequent_indent=" " * 24)))
        return
    page = _place(output, force)
    form = output_form.chosen(output, output_file.FORMS, "html")
    require_new(kept, force)
    for each in (page, kept):
        folder = None if each is None else each.absolute().parent
        require(
            folder is not None and not os.access(folder, os.W_OK | os.X_OK),
            f"{folder} is no folder to write to",
        )
    chosen = {
        name: act for name, act in acts.items() if name in only or not (only or name in runner.ASKED_FOR)
    }
    try:
        with tidy_ends():
            with _progress() as tell:
                tell("Importing torch", 0.0)
                import stoker.loader  # noqa: F401  seconds that are no act's

                record = runner.perform(chosen, quick=quick, tell=tell)
            closing = [_paged(record, page, form, beside=output is None and page != _PAGE)]
            if kept is not None:
                from stoker._tools.demo.record import dumps

                deliver("demo", dumps(record), kept)
                closing.append(f"All that was measured: {kept}")
            _tell(record, closing, as_json)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    failed = any(each["failure"] for each in record["acts"].values())
    sys.exit(INTERRUPTED if record["interrupted"] else _FAILED if failed else 0)


def _place(output: Path | None, force: bool) -> Path:
    """Where the page goes. An existing file is kept unless the user asked to replace it."""
    if output is not None:
        require_new(output, force)
        return output
    place, number = _PAGE, 1
    while place.exists() and not force:
        number += 1
        place = _PAGE.with_stem(f"{_PAGE.stem}-{number}")
    return place


def _paged(record: dict[str, Any], page: Path, form: str, *, beside: bool) -> str:
    """Write the page; what is to be said of it. ``beside``: there was one of the usual name."""
    from stoker._tools.demo.page import report

    if not any(each["result"] for each in record["acts"].values()):
        return "No page was written: there is nothing to show."
    try:
        text = output_file.rendered(report(record), form, page)
    except ImportError as error:
        return f"No page was written: {error}"
    deliver("demo", text, page)
    return f"To look at: {page}" + (f" ({_PAGE} already exists)" if beside else "")


def _tell(record: dict[str, Any], closing: list[str], as_json: bool) -> None:
    if as_json:
        from stoker._tools.demo.record import dumps

        deliver("demo", dumps(record), None)
        for each in closing:
            click.echo(each, err=True)
        return
    from stoker._tools.demo import summary

    summary.show(record, closing)


class _ByAct:
    """Lines, and one at once when an act begins."""

    def __init__(self) -> None:
        self._act = ""
        self._lines = Lines()

    def tell(self, what: str, share: float) -> None:
        act = what.partition(":")[0]
        if act != self._act:
            self._act, self._lines = act, Lines()
        self._lines.tell(what, share)


@contextmanager
def _progress() -> Iterator[Tell]:
    """A bar on standard error that goes when it is done; lines where that is no terminal.

    It is drawn when something is told, and not by a thread: workers are forked meanwhile, and times are taken.
    """
    if not has_bar():
        yield _ByAct().tell
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
    from rich.table import Column

    bar = Progress(
        BarColumn(bar_width=16),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn(
            "{task.description}",
            markup=False,
            table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1),
        ),
        console=console(),
        transient=True,
        auto_refresh=False,
        expand=True,
    )
    with bar:
        task = bar.add_task("", total=1.0)

        def tell(what: str, share: float) -> None:
            bar.update(task, description=what, completed=max(0.0, min(1.0, share)), refresh=True)

        yield tell
