"""The test of a device as people read it, and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TextIO

from stoker._tools.render import json_form, terminal
from stoker._tools.render.terminal import COLOURS, WIDEST, Line, section

if TYPE_CHECKING:  # it imports torch
    from stoker._tools.doctor.device_test.device_test import DeviceReport

_VERSION = 1


def show(report: DeviceReport, file: TextIO | None = None) -> None:
    """Write it to a file, standard output by default."""
    terminal.show(lambda width: _lines(report, width), file)


def render(report: DeviceReport, width: int = WIDEST) -> str:
    """The plain text, without a newline at its end."""
    return terminal.text_of(_lines(report, width))


def as_json(report: DeviceReport) -> dict[str, Any]:
    """Plain values."""
    return {
        "format": "stoker-device",
        "version": _VERSION,
        "device": report.device,
        "table": dict(report.rows),
        "findings": [json_form.finding_form(each) for each in report.findings],
    }


def _lines(report: DeviceReport, width: int) -> list[Line]:
    wide = max(len(name) for name, _ in report.rows)
    lines = section("Tested", [Line(f"The way to {report.device}")], width)
    lines += section("Measured", [Line(f"{name:{wide}}  {value}") for name, value in report.rows], width)
    for each in report.findings:
        told = [Line(f"{each.code}  {each.evidence}", style=COLOURS[each.severity]), Line(each.advice)]
        lines += section("note" if each.severity == "none" else each.severity, told, width)
    return lines + section("Verdict", [] if report.findings else [Line("Nothing to find fault with.")], width)
