"""``stoker explain``: says what an error is about, after the run."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import click

from stoker.cli.command.shared_options import json_option
from stoker.cli.completion import codes_or_files

if TYPE_CHECKING:
    from stoker._tools.doctor.check import Check
    from stoker._tools.doctor.explain import Explanation

_CODE_LIKE = re.compile(r"stk[\d_-]*", re.IGNORECASE)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("what", metavar="[FILE | CODE...]", nargs=-1, shell_complete=codes_or_files)
@json_option
@click.option("--list", "listed", is_flag=True, help="List all codes.")
@click.pass_context
def command(context: click.Context, what: tuple[str, ...], *, as_json: bool, listed: bool) -> None:
    """Explain an error: a log or traceback in FILE or on standard input (-), or print the page of each CODE (STK201, small-shm,
    or what a verdict says: more-workers, io).

    \b
      python train.py 2>&1 | tee train.log;  stoker explain train.log
      stoker explain < train.log
      stoker explain STK201

    Exit code: 0 if the error was recognised, 1 if not, 2 for a mistake in the command.
    """
    if listed:
        _list(as_json=as_json)
        return
    if not what and _is_terminal():
        click.echo(context.get_help())
        click.echo("\nGive a FILE, a CODE, or a text on standard input.", err=True)
        context.exit(2)
    told = [_words(_plain(each)) for each in what]
    if told and all(told) and not any(os.path.isfile(each) for each in what):
        _show_words([page for pages in told for page in pages], as_json=as_json)
        return
    checks = _pages(what)
    if checks:
        _show_pages(checks, as_json=as_json)
        return
    if len(what) > 1:
        raise click.UsageError("explain takes one file, or several codes.")
    found = _explained(what[0] if what else "-")
    _show(found, as_json=as_json)
    context.exit(0 if found.finding is not None else 1)


def _is_terminal() -> bool:
    """Whether standard input is a terminal: reading would wait for the user to type."""
    return sys.stdin is not None and sys.stdin.isatty()


def _pages(what: tuple[str, ...]) -> list[Check]:
    """The checks that are named, when that is what was given; [] when it is a file."""
    from stoker._tools.doctor.catalogue import check_of

    if not what or what == ("-",):
        return []
    if any(len(each.split()) > 1 and not os.path.exists(each) for each in what):
        raise click.UsageError(
            "there is no file of this name. A text is read from standard input: stoker explain < error.log"
        )
    found = [check_of(each) for each in what]
    if all(found):
        return cast("list[Check]", found)
    unknown = next(each for each, check in zip(what, found, strict=True) if check is None)
    if (
        len(what) == 1
        and not _CODE_LIKE.fullmatch(unknown)
        and (os.path.exists(unknown) or "." in unknown or "/" in unknown)
    ):
        return []
    raise _unknown(unknown)


def _plain(word: str) -> str:
    return word.strip().strip("(),").lower().replace("_", "-")


def _show_words(told: list[dict[str, Any]], *, as_json: bool) -> None:
    """What codes of verdicts and receipts and causes mean: the answer itself has the numbers, so they have no page of their own."""
    from stoker._tools.doctor.catalogue import check_of
    from stoker._tools.doctor.forms import explanation as explain_screen

    if as_json:
        click.echo(
            json.dumps({"format": "stoker-codes", "version": 1, "codes": told}, indent=2, ensure_ascii=False)
        )
        return
    width = explain_screen.width_of_terminal()
    for number, each in enumerate(told):
        _say("" if number else None)
        pages = [(code, check.title) for code in each["checks"] if (check := check_of(code)) is not None]
        _say(explain_screen.word_page(**{**each, "checks": pages}, width=width))


def _words(code: str) -> list[dict[str, Any]]:
    """Plain values of a verdict's code, a cause of waits, a code of verify: one word may be two of them. [] for none."""
    from stoker._tools.report.verdict import cause_pages
    from stoker._tools.report.verdict.codes import CODES, REMEDIES
    from stoker._tools.verify import codes as verify_codes

    found = []
    if code in CODES:
        found.append(("verdict", CODES[code], *REMEDIES[code]))
    if code in (*cause_pages.CAUSES, *cause_pages.DETAILS):
        found.append(("cause", cause_pages.title(code), cause_pages.remedy(code), cause_pages.checks(code)))
    if code in verify_codes.CODES:
        found.append(("receipt", *verify_codes.CODES[code], ()))
    return [
        {"code": code, "kind": kind, "title": title, "advice": advice, "checks": list(checks)}
        for kind, title, advice, checks in found
    ]


def _all_words() -> list[tuple[str, str, str]]:
    """Kind, code and title of all codes that are no check's."""
    from stoker._tools.report.verdict import cause_pages
    from stoker._tools.report.verdict.codes import CODES
    from stoker._tools.verify import codes as verify_codes

    words = [("verdict", code, title) for code, title in CODES.items()]
    words += [("cause", each, cause_pages.title(each)) for each in cause_pages.CAUSES]
    words += [("receipt", code, about.title) for code, about in verify_codes.CODES.items()]
    return words


def _unknown(word: str) -> click.UsageError:
    from stoker._tools.doctor.catalogue import catalogue

    names = {
        name: f"{check.code} {check.name}: {check.title}"
        for check in catalogue()
        for name in (check.code.lower(), check.name)
    }
    names |= {code: f"{code}: {title}" for _, code, title in _all_words()}
    near = dict.fromkeys(names[each] for each in get_close_matches(_plain(word), names, 6, 0.6))
    hint = "".join(f"\n  {each}" for each in list(near)[:4])
    return click.UsageError(
        f"there is no file, code or check {word!r}."
        + (f" Near it:{hint}" if hint else " stoker explain --list shows all codes.")
    )


def _explained(name: str) -> Explanation:
    from stoker._tools.doctor.explain import explain_log
    from stoker._tools.doctor.reading import logs

    if name == "-":
        if sys.stdin is None:
            raise click.UsageError("there is no standard input.")
        return explain_log(logs.of_file(cast(BinaryIO, sys.stdin.buffer)))
    try:
        with open(name, "rb") as file:
            if stat.S_ISCHR(os.fstat(file.fileno()).st_mode) and not file.isatty():
                raise click.UsageError(f"{name} is a device, which has no log.")
            return explain_log(logs.of_file(file))
    except OSError as error:
        raise click.UsageError(f"cannot read {name}: {error.strerror or error}.") from error


def _show(found: Explanation, *, as_json: bool) -> None:
    from stoker._tools.doctor.forms import explanation as explain_screen

    if as_json:
        click.echo(json.dumps(found.as_dict(), indent=2, ensure_ascii=False))
        return
    terminal = sys.stdout.isatty()
    for line in explain_screen.plain(found, explain_screen.width_of_terminal()).splitlines():
        _say(line, bold=10 if terminal and line[:10].strip() else 0)


def _show_pages(checks: list[Check], *, as_json: bool) -> None:
    from stoker._tools.doctor.explain import here, page_of
    from stoker._tools.doctor.forms import explanation as explain_screen

    if as_json:
        told = [
            {
                "code": check.code,
                "name": check.name,
                "title": check.title,
                "severity": check.severity,
                "sections": check.sections,
                "prevented": check.prevented or None,
                "page": page_of(check),
            }
            for check in checks
        ]
        click.echo(
            json.dumps({"format": "stoker-codes", "version": 1, "codes": told}, indent=2, ensure_ascii=False)
        )
        return
    width = explain_screen.width_of_terminal()
    for number, check in enumerate(checks):
        _say("" if number else None)
        _say(explain_screen.page(check, width))
        found = here(check)
        _say(explain_screen.here_lines(found, width) if found else None)


def _list(*, as_json: bool) -> None:
    from stoker._tools.doctor.catalogue import catalogue
    from stoker._tools.doctor.forms import explanation as explain_screen

    words = _all_words()
    if as_json:
        told = [
            {"code": check.code, "name": check.name, "title": check.title, "severity": check.severity}
            for check in catalogue()
        ] + [{"code": code, "name": code, "title": title, "severity": None} for _, code, title in words]
        click.echo(
            json.dumps({"format": "stoker-codes", "version": 1, "codes": told}, indent=2, ensure_ascii=False)
        )
        return
    rows = [(check.code, check.name, check.title) for check in catalogue()]
    for line in explain_screen.listed(rows + words, explain_screen.width_of_terminal()):
        _say(line)


def _say(text: str | None, bold: int = 0) -> None:
    """Print a text, its first ``bold`` letters in bold; nothing for None."""
    if text is None:
        return
    from stoker._tools.render.terminal import encodable

    plain = "\n".join(encodable(line, sys.stdout) for line in text.split("\n"))
    click.echo(click.style(plain[:bold], bold=True) + plain[bold:] if bold else plain)
