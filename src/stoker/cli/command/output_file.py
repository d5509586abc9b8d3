"""Writes a report to a file or to standard output: chooses its form, and checks that it may be written there."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stoker.cli.command.exit_status import refuse, require
from stoker.cli.command.output_form import SUFFIXES
from stoker.errors import RecordError

if TYPE_CHECKING:
    from stoker._tools.render.section import Report

FORMS = ("html", "md", "json", "text")


def form_of(output: Path | None) -> str | None:
    """The form that a file's name asks for; None without a file. A usage error when the name does not tell."""
    if output is None:
        return None
    form = SUFFIXES.get(output.suffix.lower())
    require(
        form not in FORMS,
        f"the name of {output} does not say which format to write: pass --format {'|'.join(FORMS)}",
    )
    return form


def has_documents(paths: Sequence[Path]) -> bool:
    """Whether there is something that only a report shows: of the tuner, the doctor, the demo. False for what cannot be read."""
    from stoker._tools.report.page import sources

    try:
        return any(
            sources.format_of(each) in (sources.TUNING, sources.DIAGNOSIS, sources.DEMO) for each in paths
        )
    except RecordError:
        return False


def check(output: Path | None, paths: Sequence[Path], force: bool) -> None:
    """Ends with code 2 when the file may not be written."""
    if output is None:
        return
    try:
        there = output.exists()
        itself = there and any(each.exists() and output.samefile(each) for each in paths)
    except OSError as error:  # a name that is too long, a folder that may not be looked into
        refuse("report", f"cannot write {output}: {error.strerror or error}")
    if itself:
        refuse("report", f"{output} is what the report is about: write it to another file")
    if there and not force:
        refuse("report", f"{output} exists: pass --force to write over it")


def write(
    paths: Sequence[Path],
    form: str,
    output: Path | None,
    *,
    price_per_hour: float | None = None,
    watts: float | None = None,
) -> None:
    """Make the report and write it. Raises RecordError and TraceError; ends with code 2 when it cannot be written."""
    from stoker._tools.report.profiler.reading import is_trace

    if form == "html" and output is None and sys.stdout is not None and sys.stdout.isatty():
        refuse("report", "an HTML page is nothing for a terminal: name a file, -o report.html")
    prices = {"price_per_hour": price_per_hour, "watts": watts}
    report = _traces(paths, **prices) if all(map(is_trace, paths)) else _report(paths, **prices)
    put(report, form, output)


def put(report: Report, form: str, output: Path | None) -> None:
    """Write a report that has been made. Ends with code 2 when it cannot be written."""
    from stoker._host.private_files import write_file
    from stoker._tools.render.terminal import encodable

    try:
        text = rendered(report, form, output)
    except ImportError as error:  # the chart library
        refuse("report", str(error))
    data = f"{text}\n".encode("utf-8", "replace")  # a record may hold halves of characters
    if output is None:  # a page is for a browser as it is, its scripts to the letter
        click.echo(data if form == "html" else encodable(text, sys.stdout), nl=form != "html")
        return
    try:
        write_file(output, data)
    except OSError as error:
        refuse("report", f"cannot write {output}: {error.strerror or error}")
    click.echo(
        f"Wrote {output} ({_size(len(data))})" + (": open it in a browser" if form == "html" else ""),
        err=True,
    )


def _report(paths: Sequence[Path], **prices: float | None) -> Report:
    from stoker._tools.report.page import build, sources

    if len(paths) == 1 and sources.format_of(paths[0]) == sources.DEMO:
        return _demo(paths[0])
    return build.report(sources.read(paths, **prices))


def _traces(paths: Sequence[Path], **prices: float | None) -> Report:
    from stoker._tools.report.page import build
    from stoker._tools.report.page.material import Material
    from stoker._tools.report.profiler import ranks, verdict

    return build.report(Material((), traces=verdict.judge(ranks.read(paths), **prices)))


def _demo(path: Path) -> Report:
    """Return the report of a demo's record, made by the demo itself."""
    from stoker._tools.demo import page
    from stoker._tools.report.page import sources

    report: Report = page.report(sources.document(path))
    return report


def rendered(report: Report, form: str, output: Path | None) -> str:
    """A report in one of FORMS. Raises ImportError when the chart library is not there."""
    from importlib import import_module

    if form == "text":
        from stoker._tools.render import text

        return text.render(report, text.width(sys.stdout if output is None else None))
    name = {"html": "html", "md": "markdown", "json": "json_form"}[form]
    rendered: str = import_module(f"stoker._tools.render.{name}").render(report)
    return rendered


def _size(count: int) -> str:
    return f"{count / 1e6:.2f} MB" if count >= 1e6 else f"{count / 1e3:.0f} kB"
