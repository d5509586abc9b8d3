"""Shared by ``stoker profile`` and ``stoker run``: options, running the script, and reporting the result."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from stoker._host.private_files import temporary_folder, write_file
from stoker._tools.profile import supervisor
from stoker.cli.command.exit_status import deliver, finite, require, say
from stoker.cli.command.output_form import chosen
from stoker.cli.command.script_answer import aside, put_fix, write_page
from stoker.cli.completion import files

if TYPE_CHECKING:  # what tells about the run is imported when it is over: the script is to start at once
    from stoker._record.schema import RunRecord
    from stoker._tools.report.verdict.verdict import Verdict

Function = TypeVar("Function", bound=Callable[..., Any])

CONTEXT = {"allow_interspersed_args": False, "help_option_names": ["-h", "--help"]}
"""Options end at the script: what follows is the script's, --help and -m included."""

FORMS = ("json", "html", "md", "text")
_LAUNCHERS = ("horovodrun", "mpiexec", "mpirun", "srun")
"""Commands that are no Python scripts, and start ranks on other machines."""


@dataclass(frozen=True, slots=True)
class ScriptOptions:
    """What the user asked for. ``output`` is None when no record file was named."""

    mode: str
    module: bool
    script: str
    arguments: tuple[str, ...]
    output: Path | None
    force: bool
    json: Path | None
    trace: Path | None
    price_per_hour: float | None
    watts: float | None
    quiet: bool
    follow: bool = True
    as_json: bool = False
    fix: bool = False
    write: bool = False

    @property
    def answers(self) -> bool:
        """Whether standard output is for our answer, and not for what the script prints."""
        return self.as_json or self.fix or self.write

    @property
    def form(self) -> str:
        """What ``output`` is: "json" for the record, else the form of a report."""
        return chosen(self.output, FORMS, "json")

    @property
    def argv(self) -> list[str]:
        """As the user would have given it to Python."""
        before = (
            ["-m"] if self.module else ["--"] if self.script.startswith("-") and self.script != "-" else []
        )
        return [*before, self.script, *self.arguments]


def options(function: Function) -> Function:
    """The options of both commands, and the script with its arguments."""
    file = click.Path(dir_okay=False, path_type=Path)
    for option in reversed((
        click.option("-m", "module", is_flag=True, help="SCRIPT is a module, run as python -m does."),
        click.option(
            "-o", "--output", type=file,
            help="Write the run record here, or a report: .html, .md, .txt. [default: SCRIPT-<time>.stoker.json]",
        ),
        click.option("--force", is_flag=True, help="Overwrite existing files."),
        click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON; what the script prints goes to stderr."),
        click.option("--verdict", "json", type=file, help="Write the verdict here, as JSON."),
        click.option("--fix", is_flag=True, help="Print the first edit as a patch; what the script prints goes to stderr."),
        click.option("--write", is_flag=True, help="Print the first edit as a patch, and apply it."),
        click.option("--trace", type=file, help="Write a Chrome trace here, for Perfetto."),
        click.option("--price-per-hour", type=click.FloatRange(min=0), callback=finite, metavar="PRICE",
                     help="Shows idle time as money."),
        click.option("--watts", type=click.FloatRange(min=0), callback=finite, metavar="WATTS", help="Shows idle time as energy."),
        click.option("--follow/--no-follow", default=True, help="Include Python processes that the script starts, or not."),
        click.option("-q", "--quiet", is_flag=True, help="Print nothing at the end; still write the record."),
        click.argument("script", shell_complete=files),
        click.argument("arguments", nargs=-1, type=click.UNPROCESSED, shell_complete=files),
    )):  # fmt: skip
        function = option(function)
    return function


def launch(order: ScriptOptions) -> NoReturn:
    """Run the script, tell how it went, and end as it ended. Never returns: errors of ours are click's."""
    flags = supervisor.interpreter_flags(sys.orig_argv)
    order = order if order.module else replace(order, script=installed(order.script))
    output, verdict, trace = (each and _ranked(each) for each in (order.output, order.json, order.trace))
    order = replace(order, output=output, json=verdict, trace=trace)
    _check(order, flags)
    default = _default(order)
    try:
        folder = Path(temporary_folder("stoker-run-"))
    except OSError as error:
        raise click.ClickException(
            f"there is no folder for temporary files: {error}. Set TMPDIR to one."
        ) from error
    command = [sys.executable, *flags, *order.argv]
    kept = False
    try:
        environ = supervisor.environment(order.mode, folder, os.environ, follow=order.follow)
        with aside(order.answers):
            outcome = supervisor.supervise(command, environ)
        try:
            kept = not _tell(order, outcome, folder, default)
        except (Exception, KeyboardInterrupt) as error:  # the script has run, and its end is what counts
            kept = True
            _say(f"stoker: no summary, {type(error).__name__}: {error}. Get it with: stoker report {folder}")
    except OSError as error:
        raise click.ClickException(f"the script cannot be started: {error}") from error
    finally:
        if not kept:
            shutil.rmtree(folder, ignore_errors=True)
    supervisor.end_as(outcome)


def installed(script: str) -> str:
    """The script; for the name of an installed command that Python runs, such as torchrun, its file."""
    if os.path.exists(script) or os.sep in script:
        return script
    found = shutil.which(script)
    if found is None:
        return script
    try:
        with open(found, "rb") as file:
            first = file.readline(512)
    except OSError:
        return script
    return found if first.startswith(b"#!") and b"python" in first else script


def _check(order: ScriptOptions, flags: Sequence[str]) -> None:
    """Refuse, before anything runs, what cannot end well."""
    both = order.as_json and (order.fix or order.write)
    require(both, "--json and --fix contradict each other: one is printed")
    chosen(order.output, FORMS, "json")  # refuses a name that asks for another form
    flag = supervisor.shut_off(flags)
    if flag is not None:
        raise click.UsageError(
            f"under python {flag} nothing can be put into the script's interpreter. Start stoker without {flag}."
        )
    files = [path for path in (order.output, order.json, order.trace) if path is not None]
    taken = {Path(os.path.realpath(order.script))} if not order.module else set()
    for path in files:
        if path.is_file() or not path.exists():
            if Path(os.path.realpath(path)) in taken:
                raise click.UsageError(f"{path} is named twice: every file needs a name of its own.")
            taken.add(Path(os.path.realpath(path)))
        if path.exists() and not order.force:
            raise click.UsageError(f"{path} exists. Give another name, or --force to overwrite it.")
        if not os.access(path.absolute().parent, os.W_OK | os.X_OK):
            raise click.UsageError(f"{path} cannot be written: its folder does not exist or is not writable.")
    if order.module or order.script == "-":
        return
    script = Path(order.script)
    if script.is_dir() and not (script / "__main__.py").exists():
        raise click.UsageError(f"{script} is a folder without a __main__.py: there is nothing in it to run.")
    if not script.exists():
        raise click.UsageError(f"there is no script {order.script!r}.{_hint(order)}")


def _hint(order: ScriptOptions) -> str:
    """A hint for a user who named a command where a script belongs."""
    command = f"stoker {order.mode}"
    name = Path(order.script).name
    if name.startswith("python"):
        return f" Leave {order.script!r} out: {' '.join((command, *order.arguments))}"
    if name in _LAUNCHERS:
        return f" Let {name} start stoker, once per rank: {name} ... stoker {order.mode} train.py"
    found = shutil.which(order.script)
    return f" To run the installed command: {command} {found}" if found else ""


def _default(order: ScriptOptions) -> Path:
    """``train-20261116-101500.stoker.json`` in the folder that is the current one before the script runs."""
    script = Path(order.script)
    with contextlib.suppress(OSError):  # the current folder may be gone
        script = script.absolute()
    stem = order.script.replace(".", "-") if order.module else "stdin" if order.script == "-" else script.stem
    path = Path(f"{stem}-{time.strftime('%Y%m%d-%H%M%S')}.stoker.json")
    with contextlib.suppress(OSError):
        path = path.absolute()
    return _ranked(path)


def _ranked(path: Path) -> Path:
    """A name of this rank's own: ``run-rank3.json``."""
    rank = _rank()
    if rank is None:
        return path
    stem, dot, suffixes = path.name.partition(".")
    return path.with_name(f"{stem}-rank{rank}{dot}{suffixes}")


def _rank() -> int | None:
    """Which rank among others a launcher says that this is; None: there are no others."""
    rank = os.environ.get("RANK", "")
    return int(rank) if rank.isdecimal() and os.environ.get("WORLD_SIZE", "1") != "1" else None


def _tell(order: ScriptOptions, outcome: supervisor.ScriptExit, folder: Path, default: Path) -> bool:
    """Write what was asked for and print the screen. False: ``folder`` has to stay, the record could not be written."""
    from stoker._tools.profile.collected_records import gather
    from stoker._tools.report.trace import trace
    from stoker._tools.report.verdict import screen
    from stoker._tools.report.verdict.verdict import judge

    gathered = gather(folder, outcome, order.argv)
    record = gathered.record
    said = [f"{'' if number else 'Ranks':10}{each}" for number, each in enumerate(gathered.ranks)]
    said += [f"stoker: {each}" for each in (*gathered.left, *gathered.unreadable)]
    written = True
    prices = {"price_per_hour": order.price_per_hour, "watts": order.watts}
    if record.loaders or order.output is not None:
        own = order.output if order.form == "json" else None
        path = own or default
        try:
            path = _write(record, path, replace=own is not None)
            said.append(f"Record    {_shown(path)}")
            if order.output is not None and own is None:
                trouble = write_page(path, order.form, order.output, **prices)
                said += [f"stoker: {trouble}"] if trouble else []
        except OSError as error:
            written = False
            said.append(f"stoker: cannot write {path}: {error.strerror}. Get it from: stoker report {folder}")
    verdict = judge(record, **prices)
    try:
        if order.json is not None:
            write_file(order.json, f"{json.dumps(screen.as_json(verdict), default=repr)}\n".encode())
            said.append(f"Verdict   {_shown(order.json)}")
        if order.trace is not None:
            trace.write(record, order.trace, force=order.force)
            said.append(f"Trace     {_shown(order.trace)}")
    except OSError as error:
        said.append(f"stoker: {error}")
    if not order.quiet and not order.as_json and not _rank():  # one screen for all ranks, of the first
        _show(verdict)
    if not record.loaders and not order.follow:
        said.append(
            "stoker: processes that the script starts were not followed. Leave --no-follow out to include them."
        )
    if said and not (order.quiet and written):
        _say("\n".join(said))
    if not _rank():
        _answer(order, verdict)
    return written


def _answer(order: ScriptOptions, verdict: Verdict) -> None:
    """On standard output, where an option asks for that."""
    if order.as_json:
        from stoker._tools.report.verdict import screen

        deliver(order.mode, json.dumps(screen.as_json(verdict), default=repr), None)
    elif order.answers:
        script = None if order.module else Path(order.script)
        with contextlib.suppress(SystemExit):  # it has said why, and the script's end counts
            put_fix(order.mode, verdict, script, write=order.write)


def _show(verdict: Verdict) -> None:
    """On stderr: stdout is the script's. Whoever closed it does not want to know."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        from stoker._tools.report.verdict import screen

        sys.stderr.write("\n")
        screen.show(verdict, sys.stderr)


def _say(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        say(text)


def _write(record: RunRecord, path: Path, *, replace: bool) -> Path:
    """Where it was written: a name that is taken gets a number, unless it may be replaced."""
    from stoker._record import journal

    wanted, number = path, 1
    while not replace:
        try:
            path.touch(exist_ok=False)
            break
        except FileExistsError:
            number += 1
            path = wanted.with_name(f"{wanted.name.removesuffix('.stoker.json')}-{number}.stoker.json")
    try:
        journal.write(record, path)
    except OSError:
        if not replace:
            path.unlink(missing_ok=True)
        raise
    return path


def _shown(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except (OSError, ValueError):
        return str(path)
