"""Writes the pages of all checks: ``python docs/check_pages.py [--check] [FOLDER]``, which ``make docs`` runs.

A page is made of its check alone: whoever changes a check's docstring, severity or marks runs it again, and a test says so.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from re import _constants as kinds  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

from stoker._tools.doctor.catalogue import catalogue
from stoker._tools.doctor.check import SECTIONS, Check
from stoker._tools.doctor.facts import FACTS

FOLDER = Path("docs/checks")
_GROUPS = {
    "1": "Sending the dataset to workers",
    "2": "The machine",
    "3": "The environment",
    "4": "Samples and batches",
    "5": "Order and randomness",
    "6": "Memory",
    "7": "Speed",
    "8": "Crashes and hangs, recognised afterwards",
    "9": "stoker's own errors",
}
"""By the first digit of a code."""
_MOST_SAMPLES = 4
_LONGEST_SAMPLE = 110
_LEAST_WEIGHT = 8
"""Marks that weigh less are hints, not what somebody would search for."""


def pages() -> dict[str, str]:
    """By file name: what is to be written."""
    return {"README.md": _index(), **{f"{each.code}.md": page(each) for each in catalogue()}}


def page(check: Check) -> str:
    """One check's page."""
    lines = [f"# {check.code} {check.title}", "", *_facts(check), ""]
    for name in SECTIONS:
        lines += [f"## {name}", "", check.sections[name], ""]
    if seen := samples(check):
        lines += [
            "## What people see",
            "",
            "Texts like these, which `stoker explain` recognises:",
            "",
            "```text",
        ]
        lines += [*seen, "```", ""]
    lines.append("[All findings](README.md)")
    return "\n".join(lines) + "\n"


def samples(check: Check) -> list[str]:
    """What its strongest marks look like, in words."""
    strongest = sorted(check.marks, key=lambda mark: -mark.weight)
    texts = (sample(mark.pattern) for mark in strongest if mark.weight >= _LEAST_WEIGHT)
    return list(dict.fromkeys(text for text in texts if len(text) > 5))[:_MOST_SAMPLES]


def stale(folder: Path = FOLDER) -> list[str]:
    """Names of pages that are not as the checks have them: missing, old, or of a check that is gone."""
    wanted = pages()
    there = {each.name: each.read_text(encoding="utf-8") for each in folder.glob("*.md")}
    return sorted(name for name in wanted.keys() | there.keys() if wanted.get(name) != there.get(name))


def write(folder: Path = FOLDER) -> list[str]:
    """Make them so. Returns the names of those that changed."""
    wanted, changed = pages(), stale(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name in changed:
        if name in wanted:
            (folder / name).write_text(wanted[name], encoding="utf-8")
        else:
            (folder / name).unlink()
    return changed


def _facts(check: Check) -> list[str]:
    rows = [("name", f"`{check.name}`"), ("severity", f"{check.severity}, at worst"), ("found", _when(check))]
    if check.needs:
        rows.append(("looks at", "; ".join(FACTS[name] for name in check.needs)))
    rows.append(
        ("stoker's loader", f"prevents it. {check.prevented}" if check.prevented else "does not prevent it")
    )
    if check.rows:
        which = f"row{'s' * (len(check.rows) > 1)} {', '.join(map(str, check.rows))}"
        rows.append(("tested", f"in `tests/fault`, as {which} of the project's list of known failures"))
    return ["| | |", "|---|---|", *(f"| {name} | {_cell(text)} |" for name, text in rows)]


def _when(check: Check) -> str:
    before = "before the run, by `stoker doctor`" if check.examine else ""
    after = "after it, by `stoker explain`" if check.marks else ""
    return "; ".join(filter(None, (before, after)))


def _index() -> str:
    checks = catalogue()
    lines = ["# Findings", ""]
    lines += [
        f"These are the {len(checks)} problems that `stoker doctor` looks for and `stoker explain` recognises.",
        "`stoker explain STK201` prints a page in the terminal, `stoker doctor --list` prints this list.",
        "[The doctor](../doctor.md) says how to use them. `make docs` writes these pages from",
        "`src/stoker/_tools/doctor/checks`.",
        "",
        "*Severity* is the worst case. *Before*: the doctor finds it before the run. *After*: `explain` recognises it in",
        "an error or a log. The last column says whether stoker's `DataLoader` prevents it.",
    ]
    for digit, name in _GROUPS.items():
        group = [each for each in checks if each.code[3] == digit]
        if not group:
            continue
        lines += [
            "",
            f"## {digit}xx {name}",
            "",
            "| code | finding | severity | before | after | stoker's loader |",
            "|---|---|---|---|---|---|",
        ]
        lines += [
            f"| [{each.code}]({each.code}.md) | {_cell(each.title)} | {each.severity} | {_tick(bool(each.examine))} | "
            f"{_tick(bool(each.marks))} | {'prevents it' if each.prevented else ''} |"
            for each in group
        ]
    return "\n".join(lines) + "\n"


def _tick(yes: bool) -> str:
    return "yes" if yes else ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def sample(pattern: str) -> str:
    """A text that a regular expression would find, in one line: what varies is "…", a number N.

    Of alternatives the first stands for all; what may be left out is left out.
    """
    text = "".join(map(_said, parser.parse(pattern, re.MULTILINE)))
    text = re.sub(r"…(?:\s*…)+", "…", " ".join(text.split())).strip()
    text = re.sub(r"\bN(?:[., ]*N)+\b", "N", text)
    return text if len(text) <= _LONGEST_SAMPLE else text[: _LONGEST_SAMPLE - 1] + "…"


def _said(part: tuple[Any, Any]) -> str:
    kind, value = part
    if kind is kinds.LITERAL:
        return chr(value)
    if kind in (kinds.NOT_LITERAL, kinds.ANY):
        return "…"
    if kind is kinds.IN:
        return _class(value)
    if kind is kinds.BRANCH:
        return "".join(map(_said, value[1][0]))
    if kind is kinds.SUBPATTERN:
        return "".join(map(_said, value[3]))
    if kind is kinds.ATOMIC_GROUP:
        return "".join(map(_said, value))
    if kind in (kinds.MAX_REPEAT, kinds.MIN_REPEAT, kinds.POSSESSIVE_REPEAT):
        least, most = int(value[0]), int(value[1])
        text = "".join(map(_said, value[2]))
        if text in ("…", "N"):
            return "" if most == 1 and not least else text
        return text * max(least, 1 if most > 1 else 0)
    return ""  # beginnings, ends, and what stands near


def _class(members: list[tuple[Any, Any]]) -> str:
    kind, value = members[0]
    if kind is kinds.LITERAL and len(members) <= 2:
        return chr(value)
    if kind is kinds.CATEGORY and value is kinds.CATEGORY_DIGIT:
        return "N"
    if kind is kinds.CATEGORY and value is kinds.CATEGORY_SPACE:
        return " "
    if kind is kinds.RANGE and value == (ord("0"), ord("9")):
        return "N"
    return "…"


def main(arguments: list[str]) -> int:
    """``--check`` writes nothing, and fails when something would be written."""
    checking = "--check" in arguments
    folders = [Path(each) for each in arguments if not each.startswith("-")]
    folder = folders[0] if folders else FOLDER
    changed = stale(folder) if checking else write(folder)
    for name in changed:
        sys.stdout.write(f"{'not up to date: ' if checking else 'wrote '}{folder / name}\n")
    return 1 if checking and changed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
