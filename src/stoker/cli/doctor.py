"""``stoker doctor``: finds what is broken, or soon will be, before the run."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from stoker.cli.command.exit_status import (
    INTERRUPTED,
    deliver,
    finite,
    refusals,
    refuse,
    require,
    require_new,
    say,
    tidy_ends,
)
from stoker.cli.command.output_form import chosen, write_report
from stoker.cli.command.patch_output import put_patches
from stoker.cli.command.progress import has_bar, progress
from stoker.cli.command.shared_options import force_option, output_option, patch_options
from stoker.cli.completion import codes, files

if TYPE_CHECKING:
    from stoker._tools.doctor.diagnosis import Diagnosis

_FORMATS = ("screen", "json", "sarif", "github", "markdown")
_WRITTEN = ("json", "html", "md", "text", "sarif")
_FORM_OF = {"md": "markdown", "text": "screen"}
"""Forms of files by their names, where --format calls them otherwise."""
_SEVERITIES = ("none", "low", "moderate", "high")
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_BISECTION_S = 300.0
"""For all trials of --bisect, unless --time-limit says otherwise."""
_FOUND = 1
Progress = Callable[[str, int, int], None]


def _bytes(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """ "4G", "512MiB", "1.5g", or a plain number of bytes."""
    if value is None:
        return None
    match = re.fullmatch(r"([0-9]*\.?[0-9]+)\s*([kmgt]?)(?:i?b)?", value.strip(), re.IGNORECASE)
    size = float(match[1]) * _UNITS[match[2].lower()] if match else 0
    if not 1 <= size <= sys.maxsize:
        raise click.BadParameter(f"{value[:40]!r} is no number of bytes: write 4G or 512M", ctx, param)
    return int(size)


@click.command()
@click.argument("target", required=False, shell_complete=files)
@click.option(
    "--select",
    multiple=True,
    metavar="CODES",
    shell_complete=codes,
    help="Run only checks whose codes begin with these: STK2,STK601.",
)
@click.option(
    "--ignore", multiple=True, metavar="CODES", shell_complete=codes, help="Leave out these checks."
)
@click.option("--list", "listing", is_flag=True, help="List all checks and exit.")
@click.option("--json", "as_json", is_flag=True, help="JSON instead of the screen, as --format json.")
@click.option(
    "--format",
    "form",
    type=click.Choice(_FORMATS),
    default="screen",
    show_default=True,
    help="What to write.",
)
@output_option(
    "Write to a file. Its name says what, if --format does not: .html, .md, .txt, .json or .sarif."
)
@force_option
@click.option(
    "--fail-on",
    type=click.Choice(_SEVERITIES),
    default="high",
    show_default=True,
    help="Exit code 1 for a finding of at least this severity; none: never.",
)
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="Show everything: findings in full, skipped checks with their reasons.",
)
@click.option(
    "--time-limit",
    type=click.FloatRange(min=1),
    callback=finite,
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Limit for all probes together.",
)
@click.option(
    "--memory-limit",
    callback=_bytes,
    metavar="SIZE",
    help="Limit for each probe, such as 4G. Half of the available memory by default.",
)
@click.option("--batch-size", type=click.IntRange(min=1), help="Use this instead of the loader's own.")
@click.option("--num-workers", type=click.IntRange(min=0), help="Use this instead of the loader's own.")
@click.option(
    "--ray",
    is_flag=False,
    flag_value="auto",
    metavar="ADDRESS",
    help="Also ask the nodes of this Ray cluster: versions, CPUs, stores, the dataset's paths. Without ADDRESS: the one that runs.",
)
@patch_options("the changes")
@click.option(
    "--bisect", is_flag=True, help="Narrow down a failure: no workers, one, more; one suspect at a time."
)
@click.option(
    "--device",
    metavar="DEVICE",
    help="Test the way to a device instead, such as cuda or auto: registration, bandwidth, overlap, checked batches.",
)
@click.option(
    "--batches",
    type=click.IntRange(min=1),
    default=10_000,
    show_default=True,
    help="With --device: how many batches to check.",
)
def command(
    target: str | None,
    listing: bool,
    as_json: bool,
    form: str,
    output: Path | None,
    force: bool,
    fix: bool,
    write: bool,
    bisect: bool,
    device: str | None,
    batches: int,
    **options: Any,
) -> None:
    """Examine TARGET (package.module:object or path/to/file.py:object): a Dataset, a DataLoader, or a function that returns one.

    Without TARGET only the machine is examined. Your code runs in child processes, with limits on time and memory.

    Exit code: 0, 1 by --fail-on, 2 when TARGET cannot be loaded or an option is wrong, 130 after Ctrl-C.
    """
    require(as_json and form not in ("screen", "json"), f"--json and --format {form} contradict each other")
    form = _form(as_json, form, output, alone=bisect or device is not None)
    fix = fix or write
    require(target is None and (fix or bisect), f"{'--fix' if fix else '--bisect'} needs a TARGET")
    require(
        fix and (bisect or form != "screen" or output is not None), "--fix stands alone: it writes a patch"
    )
    require(bisect and form not in ("screen", "json"), "--bisect writes a screen or JSON")
    require(
        device is not None and (target is not None or fix or bisect),
        "--device stands alone: it takes no TARGET",
    )
    require(device is not None and form not in ("screen", "json"), "--device writes a screen or JSON")
    require(
        options["ray"] is not None and (bisect or device is not None),
        f"--ray and {'--bisect' if bisect else '--device'} contradict each other",
    )
    require_new(output, force)
    try:
        with tidy_ends():
            _require_codes(options)
            if device is not None:
                sys.exit(_test_device(device, batches, form, output, options["fail_on"]))
            if listing:
                _list(options["select"], options["ignore"])
            elif bisect:
                assert target is not None
                sys.exit(_bisect(target, form, output, options))
            else:
                diagnosis = _examined(target, options)
                if fix:
                    assert target is not None
                    _fix(diagnosis, target, write, "none" if options["select"] else "moderate")
                else:
                    _show(diagnosis, target, form, output, options["verbose"])
                sys.exit(_exit_code(diagnosis, options["fail_on"]))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _form(as_json: bool, form: str, output: Path | None, *, alone: bool) -> str:
    """What is written: as options say, else as the file's name does. ``alone``: an answer that has only a screen and JSON."""
    if click.get_current_context().get_parameter_source("form") is not ParameterSource.DEFAULT:
        return "json" if as_json else form
    named = chosen(output, ("json", "text") if alone else _WRITTEN, "json" if as_json else form)
    require(as_json and named != "json", f"--json and {output} contradict each other")
    return _FORM_OF.get(named, named)


def _require_codes(options: dict[str, Any]) -> None:
    """Take lists apart, and refuse what selects nothing."""
    from stoker._tools.doctor.catalogue import selected

    for name in ("select", "ignore"):
        options[name] = [code.strip() for value in options[name] for code in value.split(",") if code.strip()]
    try:
        selected(options["select"], options["ignore"])
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def _examined(target: str | None, options: dict[str, Any]) -> Diagnosis:
    """What the doctor says. Ends with code 2 when the target cannot be loaded."""
    from stoker._tools.doctor.examination import doctor

    with refusals("doctor"), _progress(options["verbose"]) as progress:
        return doctor(
            target,
            select=options["select"],
            ignore=options["ignore"],
            batch_size=options["batch_size"],
            num_workers=options["num_workers"],
            time_limit_s=options["time_limit"],
            memory_limit_bytes=options["memory_limit"],
            ray=options["ray"],
            progress=progress,
        )


def _exit_code(diagnosis: Diagnosis, fail_on: str) -> int:
    from stoker._record.finding import SEVERITIES

    if diagnosis.interrupted:
        return INTERRUPTED
    bad = [
        each for each in diagnosis.findings if SEVERITIES.index(each.severity) >= SEVERITIES.index(fail_on)
    ]
    return _FOUND if bad and fail_on != "none" else 0


def _show(diagnosis: Diagnosis, target: str | None, form: str, output: Path | None, verbose: bool) -> None:
    if form == "html" and output is not None:
        from stoker._tools.doctor.forms import data

        write_report(data.render(diagnosis), form, output)
        return
    if form == "screen" and output is None:
        from stoker._tools.doctor.forms import screen

        screen.show(diagnosis, verbose=verbose, target=target)
        return
    deliver("doctor", _rendered(diagnosis, target, form, verbose), output)


def _rendered(diagnosis: Diagnosis, target: str | None, form: str, verbose: bool) -> str:
    if form == "screen":
        from stoker._tools.doctor.forms import screen

        return screen.render(diagnosis, verbose=verbose, target=target)
    from importlib import import_module

    module = import_module(f"stoker._tools.doctor.forms.{'data' if form == 'json' else form}")
    text: str = module.render(diagnosis)
    return text


def _fix(diagnosis: Diagnosis, target: str, write: bool, least: str) -> None:
    """The patch to standard output, all else to standard error: the one can be piped into ``git apply``."""
    from stoker._tools.doctor.forms.screen import headline
    from stoker._tools.doctor.patches.fixes import fixes

    found = fixes(diagnosis, least)
    say(f"{diagnosis.subject}: {headline(diagnosis)}")
    again = f"To write it: stoker doctor {target} --fix --write"
    put_patches("doctor", found.patches, found.refused, write=write, again=again)


def _bisect(target: str, form: str, output: Path | None, options: dict[str, Any]) -> int:
    """The trials and what they come down to. Exit code 1 when the loader fails as it is."""
    import json

    from stoker._tools.doctor.bisection.bisect import bisect
    from stoker._tools.doctor.forms import bisection as bisect_screen

    given = click.get_current_context().get_parameter_source("time_limit")
    if given is ParameterSource.DEFAULT:
        options["time_limit"] = _BISECTION_S
    with refusals("doctor"), _progress(options["verbose"]) as progress:
        found = bisect(
            target,
            batch_size=options["batch_size"],
            num_workers=options["num_workers"],
            time_limit_s=options["time_limit"],
            memory_limit_bytes=options["memory_limit"],
            progress=progress,
        )
    if form == "json":
        deliver("doctor", json.dumps(bisect_screen.as_json(found), indent=2), output)
    elif output is not None:
        deliver("doctor", bisect_screen.render(found), output)
    else:
        bisect_screen.show(found)
    if found.interrupted:
        return INTERRUPTED
    return _FOUND if not found.conclusion.works and options["fail_on"] != "none" else 0


def _test_device(device: str, batches: int, form: str, output: Path | None, fail_on: str) -> int:
    """The table and the findings of a device. It runs in this process, which gets the device."""
    import json

    from stoker._record.finding import SEVERITIES
    from stoker._tools.doctor.device_test.device_test import examine_device
    from stoker._tools.doctor.forms import device as device_form
    from stoker.errors import DeviceError

    try:
        with progress(f"Testing {device}", wide=30) as tell:
            report = examine_device(device, batches, tell)
    except DeviceError as error:
        refuse("doctor", error)
    if form == "json":
        deliver("doctor", json.dumps(device_form.as_json(report), indent=2), output)
    elif output is not None:
        deliver("doctor", device_form.render(report), output)
    else:
        device_form.show(report)
    bad = any(SEVERITIES.index(each.severity) >= SEVERITIES.index(fail_on) for each in report.findings)
    return _FOUND if bad and fail_on != "none" else 0


def _list(select: list[str], ignore: list[str]) -> None:
    from stoker._tools.doctor.catalogue import selected
    from stoker._tools.render.terminal import WIDEST, width_of

    width = width_of(sys.stdout)
    for check in selected(select, ignore):
        kind = "before and after" if check.examine and check.marks else "before" if check.examine else "after"
        line = f"{check.code}  {check.severity:8}  {kind:16}  {check.title}"
        for each in [line] if width == WIDEST else textwrap.wrap(line, width, subsequent_indent=" " * 8):
            click.echo(each)


@contextmanager
def _progress(verbose: bool) -> Iterator[Progress | None]:
    """A bar on standard error that goes when it is done; lines instead, with --verbose, where that is no terminal."""
    if not has_bar():
        yield _show_progress if verbose else None
        return
    with progress("Examining", wide=30) as tell:
        yield lambda name, done, total: tell(name, done / max(1, total))


def _show_progress(name: str, done: int, total: int) -> None:
    if name:
        click.echo(f"[{done + 1}/{total}] {name}", err=True)
