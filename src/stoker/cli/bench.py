"""``stoker bench``: torch's loader and ours side by side, on the user's own dataset."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stoker.cli.command.exit_status import INTERRUPTED, deliver, finite, refusals, require_new, tidy_ends
from stoker.cli.command.output_form import chosen
from stoker.cli.command.progress import progress
from stoker.cli.command.shared_options import force_option, json_option, output_option
from stoker.cli.command.tune_options import about_the_run, run_arguments
from stoker.cli.completion import files
from stoker.errors import RecordError

if TYPE_CHECKING:
    from stoker._tools.tune.comparison import Comparison

_FAILED = 1


@click.command()
@click.argument("target", shell_complete=files)
@about_the_run
@click.option(
    "--budget",
    type=click.FloatRange(min=1),
    callback=finite,
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="Time for the comparison.",
)
@click.option(
    "--tune-budget",
    type=click.FloatRange(min=1),
    callback=finite,
    default=45.0,
    show_default=True,
    metavar="SECONDS",
    help="Time for tuning, if there is no profile.",
)
@click.option("--fresh", is_flag=True, help="Tune again, even if there is a profile.")
@json_option
@output_option("Also write the comparison: as JSON, or the screen as .txt.")
@force_option
def command(target: str, as_json: bool, output: Path | None, force: bool, **options: Any) -> None:
    """Compare four loaders over TARGET: torch's by default, torch's by the usual advice, yours as it is, and stoker's, tuned.

    TARGET is as for stoker tune. stoker's setting comes from the profile that stoker tune saved; without one it is tuned first.
    After Ctrl-C you get the results so far.

    Exit code: 0, 1 when nothing could be compared, 2 when TARGET cannot be loaded or an option is wrong, 130 after Ctrl-C.
    """
    arguments = run_arguments(options)
    require_new(output, force)
    form = chosen(output, ("json", "text"), "json")
    try:
        with tidy_ends():
            found = _raced(target, arguments, options)
            _tell(found, as_json, output, form)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    sys.exit(INTERRUPTED if found.stopped == "interrupted" else _FAILED if found.failure else 0)


def _raced(target: str, arguments: dict[str, Any], options: dict[str, Any]) -> Comparison:
    """What came of it. Ends with code 2 when the target cannot be loaded, or options contradict it."""
    from stoker._tools.tune import bench

    with refusals("bench", RecordError, ValueError), progress("Racing") as tell:
        return bench.bench(
            target,
            **arguments,
            budget_s=options["budget"],
            tune_s=options["tune_budget"],
            fresh=options["fresh"],
            progress=tell,
        )


def _tell(found: Comparison, as_json: bool, output: Path | None, form: str) -> None:
    from stoker._tools.tune.forms import comparison

    if output is not None:
        text = comparison.as_json(found) if form == "json" else comparison.render(found)
        deliver("bench", text, output)
    if as_json:
        deliver("bench", comparison.as_json(found), None)
    else:
        comparison.show(found)
