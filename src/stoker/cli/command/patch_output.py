"""Prints the patches of ``--fix``, and writes them for ``--write``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from stoker.cli.command.exit_status import refuse, say

if TYPE_CHECKING:
    from stoker._tools.doctor.patches.fixes import FilePatch
    from stoker._tools.doctor.patches.patch import RefusedEdit

_LONGEST_EDIT = 100


def put_patches(
    command: str,
    patches: Sequence[FilePatch],
    refused: Sequence[RefusedEdit],
    *,
    write: bool,
    again: str,
) -> None:
    """Print patches to standard output, and all else to standard error: the patches can be piped into ``git apply``.

    ``again`` says how to write them. Ends with code 2 when a file cannot be written.
    """
    from stoker._tools.doctor.patches.fixes import FixError

    for each in refused:
        edit = " ".join(str(each.edit).split())
        edit = edit if len(edit) <= _LONGEST_EDIT else edit[:_LONGEST_EDIT] + "…"
        whose = "Left to you" if each.code == command else f"{each.code} is left to you"
        say(f"{whose}: {edit} ({each.reason})")
    for patch in patches:
        click.echo(patch.diff(), nl=False)  # bytes: in the file's encoding, not the terminal's
        if not write:
            continue
        try:
            patch.write()
        except FixError as error:
            refuse(command, error)
        made = [code for code in patch.made if code != command]
        click.echo(f"Changed {patch.file}{': ' if made else ''}{', '.join(made)}", err=True)
    if not patches:
        click.echo("No file was changed." if refused else "Nothing to change in a file.", err=True)
    elif not write:
        click.echo(f"Nothing was written. {again}", err=True)
