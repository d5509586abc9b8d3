"""``stoker report``: says what a run record shows, or a profiler's trace, without running anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stoker.cli.command import output_file
from stoker.cli.command.exit_status import finite, refuse, require, say
from stoker.cli.command.output_file import FORMS
from stoker.cli.command.shared_options import json_option, output_option
from stoker.errors import RecordError, TraceError

if TYPE_CHECKING:
    from stoker._record.schema import RunRecord


@click.command()
@click.argument("paths", metavar="PATH…", nargs=-1, required=True, type=click.Path(path_type=Path))
@json_option
@click.option(
    "--price-per-hour",
    type=click.FloatRange(min=0),
    callback=finite,
    metavar="PRICE",
    help="Price of the job per hour: shows idle time as money.",
)
@click.option(
    "--watts",
    type=click.FloatRange(min=0),
    callback=finite,
    metavar="WATTS",
    help="Power of its accelerators: shows idle time as energy.",
)
@click.option(
    "--trace",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also write the run as a trace for Perfetto; packed when the name ends in .gz.",
)
@click.option(
    "--merge",
    type=click.Path(path_type=Path),
    metavar="TRACE",
    help="With --trace: put this trace of torch.profiler, made in the same run, into the file.",
)
@click.option("--force", is_flag=True, help="Overwrite the file of --trace or --output.")
@output_option("Write a report with charts and tables: .html to look at, .md, .json or .txt.")
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMS),
    help="What to write. By default the file's name decides. Without --output it goes to standard output.",
)
@click.option(
    "--what-if",
    "questions",
    multiple=True,
    is_flag=False,
    flag_value="usual",
    metavar="CHANGES",
    help="Replay the run with changes: workers=8,window=32,cpus=+4,step=/2,order=any. Without CHANGES: the usual cases.",
)
def command(
    paths: tuple[Path, ...],
    as_json: bool,
    price_per_hour: float | None,
    watts: float | None,
    trace: Path | None,
    merge: Path | None,
    force: bool,
    questions: tuple[str, ...],
    output: Path | None,
    form: str | None,
) -> None:
    """Show what run records contain: files, or folders of them (processes and loaders of one run).

    PATH may also be a trace of torch.profiler, one per rank, or a folder of them. With -o or --format you get a whole report, with
    different runs side by side. It also takes the output of `stoker tune --json`, `stoker doctor --json` and `stoker demo --json`.
    """
    prices = {"price_per_hour": price_per_hour, "watts": watts}
    form = form or output_file.form_of(output)
    require(as_json and form is not None, "--json is the verdict alone: for a report in JSON, --format json")
    require(
        bool(questions) and form is not None, "--what-if has a screen of its own: ask without -o and --format"
    )
    try:
        profiled = _profiled(paths)
        if merge is not None and trace is None:
            raise click.UsageError("--merge needs --trace: where to write both to")
        if profiled and trace is not None:
            raise click.UsageError("--trace writes a run record as a trace, and these are traces already")
        if profiled and questions:
            raise click.UsageError("--what-if replays a run record, and these are traces of a profiler")
        if form is None and not profiled and not questions and output_file.has_documents(paths):
            require(as_json, "--json is the verdict on run records: for a report in JSON, --format json")
            form = "text"
        if form is not None:
            output_file.check(output, paths, force)
            if trace is not None:
                _records(paths, trace, merge, force, **prices)
            output_file.write(paths, form, output, **prices)
            return
        if questions:
            _what_if(paths, questions, as_json)
            return
        shown = _traces(paths, **prices) if profiled else _records(paths, trace, merge, force, **prices)
    except (RecordError, TraceError) as error:
        refuse("report", error)
    screen, verdict = shown
    if as_json:
        click.echo(json.dumps(screen.as_json(verdict), default=repr))
    else:
        screen.show(verdict)


def _records(
    paths: tuple[Path, ...], trace: Path | None, merge: Path | None, force: bool, **prices: float | None
) -> Any:
    """A run's records: their screen and verdict. Raises RecordError, and TraceError for what goes wrong with a trace."""
    from stoker._record import journal
    from stoker._tools.report.verdict import screen
    from stoker._tools.report.verdict.verdict import judge

    record = journal.merged([journal.read(path) for path in paths])
    if trace is not None:
        _write_trace(record, trace, merge, force)
    return screen, judge(record, **prices)


def _what_if(paths: tuple[Path, ...], questions: tuple[str, ...], as_json: bool) -> None:
    """Replays a record under other circumstances. Raises RecordError."""
    from stoker._record import journal
    from stoker._tools.report.what_if import what_if

    try:
        asked = [what_if.parse(each) for each in questions]
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--what-if") from None
    answered = what_if.answer(journal.merged([journal.read(path) for path in paths]), asked)
    if as_json:
        click.echo(json.dumps(answered))
    else:
        what_if.show(answered)


def _profiled(paths: tuple[Path, ...]) -> bool:
    """Whether these are traces of a profiler. Raises TraceError when some are and some are not."""
    from stoker._tools.report.profiler.reading import is_trace

    traces = [is_trace(path) for path in paths]
    if any(traces) and not all(traces):
        other = paths[traces.index(False)]
        raise TraceError(
            f"{other} is no trace, and others of these are: one report is about records, or about traces"
        )
    return all(traces)


def _traces(paths: tuple[Path, ...], **prices: float | None) -> Any:
    """Traces of a profiler: their screen and verdict. Raises TraceError."""
    from stoker._tools.report.profiler import ranks, screen, verdict

    return screen, verdict.judge(ranks.read(paths), **prices)


def _write_trace(record: RunRecord, path: Path, merge: Path | None, force: bool) -> None:
    from stoker._tools.report.trace import trace

    try:
        if merge is None:
            events = trace.write(record, path, force=force)
        else:
            merged = trace.merge(record, merge, path, force=force)
            events = merged.events
            if merged.damage is not None:
                say(f"stoker report: {merge}: {merged.damage}")
            if not merged.overlap:
                click.echo(
                    f"stoker report: no batch of this run was made during {merge}: is it of another run?",
                    err=True,
                )
    except FileExistsError:
        raise TraceError(f"{path} exists: pass --force to write over it") from None
    except OSError as error:
        raise TraceError(f"cannot write {path}: {error.strerror or error}") from error
    click.echo(f"Wrote {events} events to {path}: open it at https://ui.perfetto.dev", err=True)
