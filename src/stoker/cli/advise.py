"""``stoker advise``: runs a script for a bounded time and ends with at most five edits, as one patch."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stoker.cli.command.exit_status import (
    INTERRUPTED,
    deliver,
    refuse,
    require,
    require_new,
    say,
    seconds,
    tidy_ends,
)
from stoker.cli.command.patch_output import put_patches
from stoker.cli.command.script_command import CONTEXT
from stoker.cli.completion import files

if TYPE_CHECKING:
    from stoker._tools.advise.advice import Advice

_NOTHING = 1


@click.command(context_settings=CONTEXT)
@click.option(
    "--budget", type=click.FloatRange(min=1), callback=seconds, default=60.0, show_default=True, metavar="SECONDS",
    help="Time for the script; what was seen until then counts.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of the screen.")
@click.option("--fix", is_flag=True, help="Print the edits as a patch.")
@click.option("--write", is_flag=True, help="Print the edits as a patch, and apply it.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    help="Also write the report page (.html), or .md, .json, .txt.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Overwrite the file of --output.")
@click.argument("script", shell_complete=files)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, shell_complete=files)
def command(
    budget: float,
    as_json: bool,
    fix: bool,
    write: bool,
    output: Path | None,
    force: bool,
    script: str,
    arguments: tuple[str, ...],
) -> None:
    """Run SCRIPT for a while, examine its loaders, and say which edits would help, the best first.

    Everything after SCRIPT belongs to the script, whose output goes to stderr. A script that runs longer is stopped.

    Exit code: 0, 1 when no loader handed out a batch, 2 when the script cannot be started, 130 after Ctrl-C.
    """
    require(as_json and (fix or write), "--json has the patch in it: leave --fix and --write out")
    require(not Path(script).is_file(), f"there is no script {script!r}")
    require_new(output, force)
    from stoker._tools.advise.advice import advise

    try:
        with tidy_ends():
            try:
                found = advise((script, *arguments), run_s=budget, progress=_tell)
            except OSError as error:
                refuse("advise", f"the script cannot be started: {error}")
            _answer(found, as_json, fix or write)
            if output is not None and not found.failed:
                _page(found, output)
            if fix or write:
                put_patches(
                    "advise", found.patches, found.refused, write=write, again="--write makes the change."
                )
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    sys.exit(_NOTHING if found.failed else 0)


def _tell(what: str) -> None:
    say(f"stoker advise: {what}")


def _answer(found: Advice, as_json: bool, aside: bool) -> None:
    from stoker._tools.advise import screen

    if as_json:
        deliver("advise", json.dumps(found.as_json(), indent=2, default=repr), None)
    else:
        screen.show(found, sys.stderr if aside else None)


def _page(found: Advice, output: Path) -> None:
    from stoker._host.private_files import temporary_base
    from stoker._record import journal
    from stoker.cli.command import output_file

    with tempfile.TemporaryDirectory(prefix="stoker-advise-", dir=temporary_base()) as folder:
        record = Path(folder) / "run.stoker.json"
        journal.write(found.record, record)
        output_file.write([record], output_file.form_of(output) or "html", output)
