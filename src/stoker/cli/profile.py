"""``stoker profile``: runs a script with torch's own loader and records it."""

from __future__ import annotations

from typing import Any

import click

from stoker.cli.command import script_command


@click.command(context_settings=script_command.CONTEXT)
@script_command.options
def command(**given: Any) -> None:
    """Run SCRIPT and say where it waited for data, and why.

    The script runs as python SCRIPT would run it; every DataLoader in it, torch's or stoker's, is measured. At its end
    a summary is printed on stderr and the run record is written. With --json, --fix or --write, stdout is for the answer, and
    what the script prints goes to stderr. Everything after SCRIPT belongs to the script.
    """
    script_command.launch(script_command.ScriptOptions(mode="profile", **given))
