"""What ``stoker profile`` and ``stoker run`` have in common: their options, running the script, and telling how it went."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click

from stoker._metrics import journal
from stoker._metrics.record import RunRecord
from stoker.measure import supervisor
from stoker.measure.gathering import gather

Function = TypeVar("Function", bound=Callable[..., Any])

CONTEXT = {"allow_interspersed_args": False, "help_option_names": ["-h", "--help"]}
"""Options end at the script: what follows is the script's, --help and -m included."""

_LAUNCHERS = ("torchrun", "accelerate", "deepspeed", "horovodrun", "mpirun", "srun")


@dataclass(frozen=True, slots=True)
class Order:
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

    @property
    def argv(self) -> list[str]:
        """As the user would have given it to Python."""
        return [*(["-m"] if self.module else []), self.script, *self.arguments]


def options(function: Function) -> Function:
    """The options of both commands, and the script with its arguments."""
    file = click.Path(dir_okay=False, path_type=Path)
    for option in reversed((
        click.option("-m", "module", is_flag=True, help="SCRIPT is a module, run as python -m does."),
        click.option("-o", "--output", type=file, help="Write the run record here. [default: SCRIPT-<time>.stoker.json]"),
        click.option("--force", is_flag=True, help="Overwrite files that exist."),
        click.option("--json", type=file, help="Write the verdict here, as JSON."),
        click.option("--trace", type=file, help="Write a Chrome trace here, for Perfetto."),
        click.option("--price-per-hour", type=click.FloatRange(min=0), help="What the machine costs: idle time becomes money."),
        click.option("--watts", type=click.FloatRange(min=0), help="What the accelerator draws: idle time becomes energy."),
        click.option("-q", "--quiet", is_flag=True, help="Print nothing at the end; still write the record."),
        click.argument("script"),
        click.argument("arguments", nargs=-1, type=click.UNPROCESSED),
    )):  # fmt: skip
        function = option(function)
    return function


def launch(order: Order) -> NoReturn:
    """Run the script, tell how it went, and end as it ended. Never returns: errors of ours are click's."""
    flags = supervisor.interpreter_flags(sys.orig_argv)
    _check(order, flags)
    began = time.localtime()
    cwd = Path.cwd()
    try:
        folder = Path(tempfile.mkdtemp(prefix="stoker-"))
    except OSError as error:
        raise click.ClickException(
            f"there is no folder for temporary files: {error}. Set TMPDIR to one."
        ) from error
    try:
        command = [sys.executable, *flags, *order.argv]
        outcome = supervisor.supervise(command, supervisor.environment(order.mode, folder, os.environ))
        if _tell(order, outcome, folder, cwd / _default_name(order, began)):
            shutil.rmtree(folder, ignore_errors=True)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    supervisor.end_as(outcome)


def _check(order: Order, flags: Sequence[str]) -> None:
    """Refuse, before anything runs, what cannot end well."""
    flag = supervisor.shut_off(flags)
    if flag is not None:
        raise click.UsageError(
            f"under python {flag} nothing can be put into the script's interpreter. Start stoker without {flag}."
        )
    for path in (order.output, order.json, order.trace):
        if path is None:
            continue
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


def _hint(order: Order) -> str:
    """What somebody who named a command where a script belongs may have meant."""
    command = f"stoker {order.mode}"
    name = Path(order.script).name
    if name.startswith("python"):
        return f" Leave {order.script!r} out: {' '.join((command, *order.arguments))}"
    if name in _LAUNCHERS:
        how = " --no-python" if name == "torchrun" else ""
        return f" Let {name} start stoker, once per rank: {name} ...{how} {command} train.py"
    found = shutil.which(order.script)
    return f" To run the installed command: {command} {found}" if found else ""


def _default_name(order: Order, began: time.struct_time) -> str:
    """``train-20261116-101500.stoker.json``; of a rank among others, with its number."""
    stem = order.script if order.module else Path(order.script).absolute().stem
    rank = os.environ.get("RANK", "")
    ranked = f"-rank{rank}" if rank.isdecimal() and os.environ.get("WORLD_SIZE", "1") != "1" else ""
    return f"{stem if order.script != '-' else 'stdin'}-{time.strftime('%Y%m%d-%H%M%S', began)}{ranked}.stoker.json"


def _tell(order: Order, outcome: supervisor.Outcome, folder: Path, default: Path) -> bool:
    """Write what was asked for and print the screen. False: ``folder`` has to stay, the record could not be written."""
    gathered = gather(folder, outcome, order.argv)
    record = gathered.record
    lines = [f"stoker: {each}" for each in gathered.unreadable]
    written = True
    path = order.output or default
    if record.loaders or order.output is not None:
        try:
            path = _write(record, path, order.force or order.output is not None)
            lines.append(f"record: {_shown(path)}")
        except OSError as error:
            written = False
            lines.append(
                f"stoker: cannot write {path}: {error.strerror}. What the loaders wrote is in {folder}"
            )
    if not order.quiet:
        _say("\n".join([_screen(order, record), *lines]))
    return written


def _write(record: RunRecord, path: Path, replace: bool) -> Path:
    """Where it was written: a name that is taken gets a number, unless it may be replaced."""
    wanted, number = path, 1
    while not replace:
        try:
            path.touch(exist_ok=False)
            break
        except FileExistsError:
            number += 1
            path = wanted.with_name(f"{wanted.name.removesuffix('.stoker.json')}-{number}.stoker.json")
    journal.write(record, path)
    return path


def _shown(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except (OSError, ValueError):
        return str(path)


def _screen(order: Order, record: RunRecord) -> str:
    """The summary, as text."""
    ended = (
        "by " + record.run.exit
        if not record.run.ended and record.run.exit
        else f"with exit code {record.run.exit}"
    )
    head = f"stoker {order.mode}: {' '.join(order.argv)} ended {ended}"
    if not record.loaders:
        return f"{head}\nno DataLoader was iterated, so there is nothing to say about its data"
    rows = [
        f"{each.name}: {each.totals.steps} batches, waited {each.totals.wait_ns / 1e9:.3f} s of {each.totals.wall_ns / 1e9:.3f} s"
        for each in record.loaders
    ]
    return "\n".join([head, *rows])


def _say(text: str) -> None:
    """On stderr: stdout is the script's. Whoever closed it does not want to know."""
    with contextlib.suppress(OSError, ValueError):
        click.echo(text, err=True)
