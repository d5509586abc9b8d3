"""The demo on one screen: at most 24 lines, which fit 60 to 100 columns and read without colour."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any, TextIO

from stoker._tools.demo import runner
from stoker._tools.demo.gains import DISTURBED
from stoker._tools.render import terminal
from stoker._tools.render.terminal import Line

_WIDEST = 80
_FAILED = "red"


def show(record: dict[str, Any], closing: Sequence[str], file: TextIO | None = None) -> None:
    """To a file, standard output by default. ``closing``: what else is to be said, such as where the report is."""
    terminal.show(lambda width: lines(record, closing, width), file)


def lines(record: dict[str, Any], closing: Sequence[str], width: int) -> list[Line]:
    """The screen for a width. An act says less when there is no room; of each at least the first line is shown."""
    width = min(width, _WIDEST)
    head = [Line(each) for each in textwrap.wrap(_opening(record), width)]
    foot = [Line(part) for each in closing for part in _whole_words(each, width)]
    told = {name: _act_lines(name, entry) for name, entry in record["acts"].items()}
    while True:
        body = [line for name, said in told.items() for line in terminal.section(name, said, width)]
        longest = max(told, key=lambda name: len(told[name]), default=None)
        if (
            len(head) + len(body) + len(foot) <= terminal.MOST_LINES
            or longest is None
            or len(told[longest]) < 2
        ):
            return [*head, *body, *foot]
        last = [name for name in told if len(told[name]) == len(told[longest])][-1]
        told[last] = told[last][:-1]


def _act_lines(name: str, entry: dict[str, Any]) -> list[Line]:
    if entry["result"] is None:
        return [Line(f"{entry['title']}: {entry['failure'] or 'nothing was measured'}", style=_FAILED)]
    return [Line(each) for each in runner.act(name).lines(entry["result"])]


def _opening(record: dict[str, Any]) -> str:
    machine = record["machine"]
    versions = machine.get("versions") or {}
    torch = f", torch {versions['torch']}" if "torch" in versions else ""
    cpus = machine.get("usable") or machine.get("cpus") or "?"
    began = "Interrupted: what was measured" if record["interrupted"] else "Measured"
    quick = ", quickly" if record["quick"] else ""
    opening = f"{began} on this machine, {cpus} CPUs{torch}, in {record['seconds']:.0f} s{quick}."
    return f"{opening} {disturbance(record)}".rstrip()


def disturbance(record: dict[str, Any]) -> str:
    """Say whether others were in the way: processes, or guests of the same host."""
    share = record.get("others")
    if not isinstance(share, float) or share < DISTURBED:
        return ""
    return f"Others had {share:.0%} of the CPUs meanwhile: run it again when it is quiet here."


def _whole_words(text: str, width: int) -> list[str]:
    """A path is not broken, whatever its length: it is to be copied."""
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
