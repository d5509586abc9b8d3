"""Ends commands that run user code: interrupted, refused, or with an answer in a file."""

from __future__ import annotations

import errno
import math
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click

from stoker.errors import TargetError

MISUSED, INTERRUPTED = 2, 130
"""Exit codes."""


def unwritten(error: OSError) -> NoReturn:
    """An answer that does not fit on a disk is told in a line, with code 2; other errors are raised again."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
        raise error
    sys.stdout = None  # what is left in it cannot be written at the end either
    click.echo(f"stoker: cannot write the answer: {error.strerror}", err=True)
    sys.exit(MISUSED)


@contextmanager
def tidy_ends() -> Iterator[None]:
    """End the sandboxes first when a scheduler or a closed terminal asks the command to end.

    An answer that does not fit on a disk is told in a line, with code 2.
    """

    def end(number: int, frame: FrameType | None) -> None:
        sys.exit(128 + number)

    # Under nohup, SIGHUP is ignored and stays so.
    numbers = [each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) is signal.SIG_DFL]
    mine = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, end) for number in numbers if mine}
    try:
        yield
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        unwritten(error)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def require(wrong: bool, message: str) -> None:
    """A usage error when something is wrong."""
    if wrong:
        raise click.UsageError(message)


def finite(ctx: click.Context, param: click.Parameter, value: float | None) -> float | None:
    """A number to calculate with: a range lets nan and inf pass."""
    if value is not None and not math.isfinite(value):
        raise click.BadParameter(f"{value} is no finite number", ctx, param)
    return value


def require_new(output: Path | None, force: bool) -> None:
    """A usage error for a file that is there already, unless ``force`` is given."""
    require(
        output is not None and output.exists() and not force,
        f"{output} exists: pass --force to write over it",
    )


def refuse(command: str, reason: object) -> NoReturn:
    """Say in a line why a command cannot go on, and end with code 2."""
    say(f"stoker {command}: {reason}")
    sys.exit(MISUSED)


def say(text: str) -> None:
    """Print to standard error what may hold a text of another program: without secrets, and what would steer a terminal."""
    from stoker._host.secrets import masked

    click.echo(masked(text), err=True)


@contextmanager
def refusals(command: str, *others: type[Exception]) -> Iterator[None]:
    """Ends with code 2 when a target cannot be loaded, with what its own code said; for ``others`` with what they say."""
    try:
        yield
    except TargetError as error:
        say(f"stoker {command}: {error}")
        for more in (error.stack, error.output.strip()):
            if more:
                say("\n".join(f"  {line}" for line in more.splitlines()[-20:]))
        sys.exit(MISUSED)
    except others as error:
        refuse(command, error)


def deliver(command: str, text: str, output: Path | None) -> None:
    """To a file, or to standard output in what its encoding has. Ends with code 2 when the file cannot be written."""
    if output is None:
        from stoker._tools.render.terminal import encodable

        click.echo(encodable(text, sys.stdout))
        return
    from stoker._host.private_files import write_file

    try:
        write_file(output, f"{text}\n".encode())
    except OSError as error:
        refuse(command, f"cannot write {output}: {error.strerror or error}")
