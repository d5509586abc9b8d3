"""What ``stoker tune``, ``doctor`` and ``demo`` wrote as JSON, given to ``stoker report``; and a tuning that is read back."""

from __future__ import annotations

import json
from pathlib import Path

from stoker._tools.demo import page as demo_page
from stoker._tools.doctor.forms import data as doctor_data
from stoker._tools.render import html, json_form, markdown, text
from stoker._tools.render.section import Report
from stoker._tools.report.page import build, sources
from stoker._tools.tune.forms import data as tune_data
from stoker._tools.tune.forms import screen as tune_screen
from stoker.errors import RecordError
from tests.fuzz import mutation
from tests.fuzz.format import Format
from tests.fuzz.formats import records
from tests.unit import demos
from tests.unit.doctor import diagnoses
from tests.unit.tuning import tunings


def _tunings() -> list[bytes]:
    return [tune_data.render(each).encode() for each in (tunings.tuning(), tunings.tuning(tunings.NOW))]


def _diagnoses() -> list[bytes]:
    found = (diagnoses.diagnosis(diagnoses.BIG, diagnoses.ARGUMENT, diagnoses.SMALL), diagnoses.diagnosis())
    return [doctor_data.render(each).encode() for each in found]


def _demos() -> list[bytes]:
    flavours = {"small": {"torch": [1.0, 1.5, 2.0], "stoker": [1.0, 2.0, 4.0]}}
    acts = {
        "scaling": {"title": "Scaling", "seconds": 1.0, "result": demos.scaling(flavours), "failure": None},
        "gap": {"title": "Gap", "seconds": 1.0, "result": None, "failure": "no time"},
        "newer": {"title": "An act", "seconds": 1.0, "result": {"found": 1}, "failure": None},
    }
    whole = demos.performed({}) | {"acts": {name: acts[name] for name in ("scaling", "gap", "newer")}}
    return [json.dumps(each).encode() for each in (whole, demos.performed({}))]


def _report(data: bytes, folder: Path) -> None:
    report = _built(data, folder)
    for render in (json_form.render, markdown.render, lambda each: text.render(each, 80)):
        render(report).encode("utf-8", "replace")


def _page(data: bytes, folder: Path) -> None:
    """The charts are drawn by a library that needs a second to start."""
    html.render(_built(data, folder)).encode("utf-8", "replace")


def _built(data: bytes, folder: Path) -> Report:
    path = folder / "found.json"
    path.write_bytes(data)
    if sources.format_of(path) == sources.DEMO:
        return demo_page.report(sources.document(path))
    return build.report(sources.read([path]))


def _tuning(data: bytes, folder: Path) -> None:
    path = folder / "tuning.json"
    path.write_bytes(data)
    found = tune_data.read(path)
    tune_screen.render(found, 80)
    tune_data.render(found)


def _all() -> list[bytes]:
    return [*_tunings(), *_diagnoses(), *_demos(), *records.seeds()]


FORMATS = (
    Format("page", _all, _page, (RecordError,), mutation.any_json),
    Format("tuning", _tunings, _tuning, (RecordError,), mutation.any_json, weight=4),
    Format("tuning-report", _tunings, _report, (RecordError,), mutation.any_json),
    Format("diagnosis-report", _diagnoses, _report, (RecordError,), mutation.any_json),
    Format("demo-report", _demos, _report, (RecordError,), mutation.any_json),
)
