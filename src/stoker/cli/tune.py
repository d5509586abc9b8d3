"""``stoker tune``: measures which settings suit a loader, and says why."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stoker.arguments import EXECUTORS
from stoker.cli.command.exit_status import (
    INTERRUPTED,
    deliver,
    finite,
    refusals,
    require,
    require_new,
    tidy_ends,
)
from stoker.cli.command.output_form import chosen, write_report
from stoker.cli.command.patch_output import put_patches
from stoker.cli.command.progress import progress
from stoker.cli.command.shared_options import force_option, json_option, output_option, patch_options
from stoker.cli.command.tune_options import about_the_run, run_arguments
from stoker.cli.completion import files
from stoker.errors import RecordError

if TYPE_CHECKING:
    from stoker._tools.tune.result import Tuning

_FAILED = 1


@click.command()
@click.argument("target", required=False, shell_complete=files)
@about_the_run
@click.option(
    "--budget",
    type=click.FloatRange(min=1),
    callback=finite,
    default=45.0,
    show_default=True,
    metavar="SECONDS",
    help="For all of it.",
)
@click.option(
    "--executor",
    type=click.Choice([kind.name for kind in EXECUTORS.values() if kind.remote]),
    help="Forecast what remote CPUs of a Ray cluster would deliver, instead of tuning this machine.",
)
@click.option(
    "--remote-cpus",
    type=click.IntRange(min=1),
    default=32,
    show_default=True,
    metavar="N",
    help="With --executor ray: forecast up to N remote CPUs.",
)
@click.option(
    "--link-gbit",
    type=click.FloatRange(min=0, min_open=True),
    callback=finite,
    default=10.0,
    show_default=True,
    metavar="GBIT",
    help="With --executor ray: the link between the nodes and this machine.",
)
@json_option
@output_option(
    "Also write the tuning: as JSON, which --show and stoker report read, or as .html, .md or .txt."
)
@force_option
@click.option("--no-save", is_flag=True, help='Save no profile for num_workers="auto".')
@patch_options("the change")
@click.option(
    "--show",
    "shown",
    type=click.Path(exists=True, path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Show a record that --output wrote, instead of tuning.",
)
def command(
    target: str | None,
    as_json: bool,
    output: Path | None,
    force: bool,
    fix: bool,
    write: bool,
    shown: Path | None,
    **options: Any,
) -> None:
    """Tune TARGET (package.module:object or path/to/file.py:object): a DataLoader, a Dataset, or a function that returns one.

    Settings take turns on this machine for a moment each. The answer has the best one, the reason, the gain and the edit. After
    Ctrl-C you get the best so far.

    Exit code: 0, 1 when TARGET could not be tuned (the answer is then a safe one), 2 when it cannot be loaded or an option is
    wrong, 130 after Ctrl-C.
    """
    arguments = run_arguments(options)
    require(
        as_json and (fix or write),
        f"--json and {'--write' if write else '--fix'} contradict each other: one is printed",
    )
    require(
        (target is None) == (shown is None),
        "give a TARGET, or --show with a record" + (", not both" if target else ""),
    )
    remote = options["executor"] is not None
    for name, given in (("--fix", fix), ("--write", write), ("--show", shown), ("--output", output)):
        require(remote and bool(given), f"--executor ray and {name} contradict each other: it is a forecast")
    require_new(output, force)
    form = chosen(output, ("json", "html", "md", "text"), "json")
    try:
        with tidy_ends():
            if remote:
                sys.exit(_forecast(str(target), arguments, options, as_json))
            tuning = _tuned(str(target), arguments, options) if shown is None else _read(shown)
            if output is not None:
                _write(tuning, form, output)
            _tell(tuning, target, as_json, fix or write)
            if fix or write:
                _fix(tuning, write)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    sys.exit(INTERRUPTED if tuning.stopped == "interrupted" else _FAILED if tuning.failure else 0)


def _tuned(target: str, arguments: dict[str, Any], options: dict[str, Any]) -> Tuning:
    """What the tuner says. Ends with code 2 when the target cannot be loaded, or options contradict it."""
    from stoker._tools.tune import tuning

    with refusals("tune", RecordError, ValueError), progress("Tuning") as tell:
        return tuning.tune(
            target,
            **arguments,
            budget_s=options["budget"],
            save=not options["no_save"],
            progress=lambda what, share, best: tell(_progress_text(what, best), share),
        )


def _forecast(target: str, arguments: dict[str, Any], options: dict[str, Any], as_json: bool) -> int:
    """Print what remote CPUs would deliver. Exit code 1 when no batch could be made."""
    import json

    from stoker._tools.render.terminal import width_of
    from stoker._tools.tune import remote

    with refusals("tune", RecordError, ValueError), progress("Tuning") as tell:
        found = remote.tune_remote(
            target,
            **arguments,
            most=options["remote_cpus"],
            link_bytes_s=options["link_gbit"] * remote.GBIT_BYTES,
            budget_s=options["budget"],
            progress=tell,
        )
    shown = "\n".join(remote.lines(found, width_of(sys.stdout)))
    deliver("tune", json.dumps(found.to_json(), indent=2) if as_json else shown, None)
    return _FAILED if found.failure else 0


def _read(path: Path) -> Tuning:
    from stoker._tools.tune.forms import data

    with refusals("tune", RecordError):
        return data.read(path)


def _write(tuning: Tuning, form: str, output: Path) -> None:
    from stoker._tools.tune.forms import data, markdown, screen

    if form == "html":
        write_report(data.render(tuning), form, output)
        return
    render = {"json": data.render, "md": markdown.render, "text": screen.render}[form]
    deliver("tune", render(tuning), output)


def _tell(tuning: Tuning, target: str | None, as_json: bool, aside: bool) -> None:
    """The answer to standard output, or to standard error when a patch is to stand alone there."""
    if as_json:
        from stoker._tools.tune.forms import data

        deliver("tune", data.render(tuning), None)
        return
    from stoker._tools.tune.forms import screen

    screen.show(tuning, sys.stderr if aside else None, target=target)


def _fix(tuning: Tuning, write: bool) -> None:
    """The patch to standard output, all else to standard error: the one can be piped into ``git apply``."""
    from stoker._tools.doctor.patches.fixes import patch_of
    from stoker._tools.doctor.patches.patch import RefusedEdit, WantedEdit

    if tuning.failure or not tuning.measured:
        click.echo("No patch: what was not measured is not written into a file.", err=True)
        return
    wanted = [WantedEdit("tune", each, tuning.line) for each in tuning.edits if each.kind != "shown"]
    refused = [
        RefusedEdit("tune", each, "there is no call that could be changed")
        for each in tuning.edits
        if each.kind == "shown"
    ]
    patch = None
    if wanted and tuning.file is None:
        refused += [
            RefusedEdit("tune", each.edit, "the file that makes the loader is unknown") for each in wanted
        ]
    elif wanted and tuning.file is not None:
        patch, not_made = patch_of(tuning.file, wanted)
        if not_made:  # half of a setting is another setting, which nobody has measured
            others = [each.edit for each in wanted if each.edit not in [left.edit for left in not_made]]
            refused += [*not_made, *(RefusedEdit("tune", each, "not without the other") for each in others)]
            patch = None
    changed = patch is not None and patch.after != patch.before
    again = "--write makes the change."
    put_patches("tune", [patch] if patch is not None and changed else [], refused, write=write, again=again)


def _progress_text(what: str, best: Tuning | None) -> str:
    if best is None or not best.points:
        return what
    from stoker._tools.tune.forms import words

    gain = f" (−{best.gain.middle:.0%})" if best.gain is not None and best.changed else ""
    return f"{what} · best so far: {words.setting_name(best.recommended)}{gain}"
