"""``stoker advise``: runs a script for a bounded time and ends with at most five edits, as one patch."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stoker._tools.profile import supervisor
from stoker.cli.command import output_file, script_command
from stoker.cli.command.exit_status import (
    INTERRUPTED,
    deliver,
    finite,
    refuse,
    require,
    require_new,
    say,
    tidy_ends,
)
from stoker.cli.command.patch_output import put_patches
from stoker.cli.command.shared_options import force_option, output_option, patch_options
from stoker.cli.completion import files

if TYPE_CHECKING:
    from stoker._tools.advise.advice import Advice

_NOTHING = 1


@click.command(context_settings=script_command.CONTEXT)
@click.option(
    "--budget", type=click.FloatRange(min=1), callback=finite, default=60.0, show_default=True, metavar="SECONDS",
    help="Time for the script; what was seen until then counts.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of the screen.")
@patch_options("the edits")
@output_option("Also write the report page (.html, .md, .txt), or all as JSON (.json).")
@force_option
@click.option("-m", "module", is_flag=True, help="SCRIPT is a module, run as python -m does.")
@click.argument("script", shell_complete=files)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, shell_complete=files)
def command(
    budget: float,
    as_json: bool,
    fix: bool,
    write: bool,
    output: Path | None,
    force: bool,
    module: bool,
    script: str,
    arguments: tuple[str, ...],
) -> None:
    """Run SCRIPT for a while, examine its loaders, and say which edits would help, the best first.

    Everything after SCRIPT belongs to the script, whose output goes to stderr. A script that runs longer is stopped.

    Exit code: 0, 1 when no loader handed out a batch, 2 when the script cannot be started, 130 after Ctrl-C.
    """
    require(as_json and (fix or write), "--json has the patch in it: leave --fix and --write out")
    script = _startable(script, module)
    require_new(output, force)
    form = output_file.form_of(output)
    from stoker._tools.advise.advice import Command, advise

    asked = Command((*(["-m"] if module else []), script, *arguments), budget)
    try:
        with tidy_ends():
            try:
                found = advise(asked, progress=_tell)
            except OSError as error:
                refuse("advise", f"the script cannot be started: {error}")
            _answer(found, as_json, fix or write)
            if output is not None and not found.failed:
                _page(found, output, form)
            if (fix or write) and not found.interrupted:
                put_patches(
                    "advise", found.patches, found.refused, write=write, again="--write makes the change."
                )
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    sys.exit(INTERRUPTED if found.interrupted else _NOTHING if found.failed else 0)


def _startable(script: str, module: bool) -> str:
    """The script's file: that of an installed command, too, such as torchrun. Ends with code 2 where Python cannot run it."""
    flag = supervisor.shut_off(supervisor.interpreter_flags(sys.orig_argv))
    require(flag is not None, f"under python {flag} nothing can be put into the script's interpreter")
    if module:
        return script
    found = script_command.installed(script)
    require(
        not Path(found).is_file(),
        f"there is no script {script!r}: advise runs a Python file, a module (-m), or an installed command of Python's, "
        "such as torchrun",
    )
    return found


def _tell(what: str) -> None:
    say(f"stoker advise: {what}")


def _answer(found: Advice, as_json: bool, aside: bool) -> None:
    from stoker._tools.advise import screen

    if as_json:
        deliver("advise", _document(found), None)
    else:
        screen.show(found, sys.stderr if aside else None)


def _document(found: Advice) -> str:
    from stoker._tools.advise import plain

    return json.dumps(plain.as_json(found), indent=2, default=repr)


def _page(found: Advice, output: Path, form: str | None) -> None:
    if form == "json":
        deliver("advise", _document(found), output)
        return
    from stoker._tools.advise import page

    output_file.put(page.report(found), form or "html", output)
