"""``stoker verify``: compares receipts of the data that loaders handed over."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from stoker.cli.command.exit_status import refuse
from stoker.cli.command.shared_options import json_option
from stoker.errors import RecordError

_WRONG = 1


@click.command()
@click.argument("paths", metavar="PATH…", nargs=-1, required=True, type=click.Path(path_type=Path))
@json_option
def command(paths: tuple[Path, ...], as_json: bool) -> None:
    """Say whether runs saw the same data, whether ranks cover every sample once, and whether legs add up.

    PATH is a file of receipts, a folder of them, or a run record with its receipts beside it. Ranks and legs of one run are found
    by what the receipts say, also over several paths. Two runs of the same ranks are compared.

    Exits with 0 if nothing is wrong, 1 if something is, 2 if a file cannot be read.
    """
    from stoker._tools.verify import screen
    from stoker._tools.verify.verification import verify

    try:
        found = verify(paths)
    except RecordError as error:
        refuse("verify", error)
    if as_json:
        click.echo(json.dumps(found.as_dict()))
    else:
        screen.show(found)
    if found.faults:
        sys.exit(_WRONG)
