"""Puts the answer of ``stoker profile`` and ``stoker run`` on standard output: the verdict as JSON, or a patch.

Standard output belongs to the script, unless one of these is asked for: then what the script prints goes to standard error,
so that nothing stands between.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stoker.cli.command.patch_output import put_patches
from stoker.errors import RecordError

if TYPE_CHECKING:
    from stoker._record.finding import Edit
    from stoker._tools.report.verdict.verdict import Verdict

_OUT, _ERR = 1, 2


@contextlib.contextmanager
def aside(active: bool) -> Iterator[None]:
    """What is started meanwhile has standard error for its standard output, if ``active``."""
    if not active:
        yield
        return
    try:
        kept = os.dup(_OUT)
    except OSError as error:
        raise click.UsageError(f"there is no standard output to answer on: {error.strerror}") from error
    try:
        os.dup2(_ERR, _OUT)
        yield
    finally:
        with contextlib.suppress(AttributeError, OSError, ValueError):
            sys.stdout.flush()
        os.dup2(kept, _OUT)
        os.close(kept)


def put_fix(command: str, verdict: Verdict, script: Path | None, *, write: bool) -> None:
    """The patch of the first edit that the verdict proposes and that can be typed, and with ``write`` the change."""
    from stoker._tools.doctor.patches.fixes import LocatedEdit, fixes_of

    first = _first(verdict)
    found = fixes_of([] if first is None else [LocatedEdit(first[0], first[1], *_place(first[1], script))])
    again = "--write makes the change. stoker advise has a patch of all edits."
    put_patches(command, found.patches, found.refused, write=write, again=again)


def _first(verdict: Verdict) -> tuple[str, Edit] | None:
    """The loaders are in the order of what they cost, and findings in that of what they gain."""
    from stoker._tools.doctor.patches.patch import kind_of

    for loader in verdict.loaders:
        for each in loader.findings:
            if each.edit is not None and kind_of(each.edit) != "shown":
                return each.code, each.edit
    return None


def _place(edit: Edit, script: Path | None) -> tuple[str | None, int | None]:
    """The file and line of "train.py:31": below the current folder, or beside the script."""
    name, _, line = (edit.site or "").rpartition(":")
    for folder in (Path(), *([] if script is None else [script.parent])):
        path = folder / name
        if name and path.is_file():
            return os.path.abspath(path), int(line) if line.isdecimal() else None
    return None, None


def write_page(record: Path, form: str, page: Path, **prices: float | None) -> str:
    """Write the report of a record's file. What went wrong in a line, "" if nothing did."""
    from stoker.cli.command import output_file

    try:
        output_file.write([record], form, page, **prices)
    except RecordError as error:
        return f"no report: {error}"
    except SystemExit:  # it has said why
        return f"no report was written to {page}"
    return ""
