"""``-o FILE`` means one thing: what a command makes goes into the file, in the form that the file's name asks for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from stoker._tools.demo import runner
from stoker._tools.doctor.bisection import bisect as bisect_module
from stoker._tools.render import chart_library
from stoker._tools.tune import bench
from stoker._tools.tune.forms import data
from stoker.cli.command.output_form import SUFFIXES
from stoker.cli.main import main
from tests.unit import demos
from tests.unit.test_narrow_screens import bisected, compared, diagnosed
from tests.unit.tuning.tunings import tuning

BEGINS = {
    ".html": "<!doctype html>", ".md": "## stoker report", ".json": '{\n  "format": "stoker-', ".txt": "STOKER REPORT",
    ".sarif": '{\n  "$schema"',
}  # fmt: skip
"""How a file begins, by its suffix."""


@pytest.fixture(autouse=True)
def _given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(chart_library, "script", lambda: "")
    monkeypatch.setattr("stoker._tools.doctor.examination.doctor", lambda *args, **more: diagnosed())
    monkeypatch.setattr(bisect_module, "bisect", lambda *args, **more: bisected())
    monkeypatch.setattr(bench, "bench", lambda *args, **more: compared())
    Path("tuning").write_text(data.render(tuning()))


def run(words: str) -> Result:
    return CliRunner().invoke(main, words.split())


def written(words: str) -> str:
    done = run(words)
    assert done.exit_code in (0, 1), done.output
    return Path(words.split()[-1]).read_text()


@pytest.mark.parametrize(
    ("words", "begins"),
    [
        ("doctor x:y", {**BEGINS, ".md": "**", ".txt": "Examined  ", "": "Examined  ", ".log": "Examined  "}),
        ("doctor x:y --bisect", {".json": BEGINS[".json"], ".txt": "Examined  "}),
        ("tune --show tuning", {".html": BEGINS[".html"], ".json": BEGINS[".json"], ".md": "**", ".txt": "Tuned     ", "": "{"}),
        ("bench x:y", {".json": BEGINS[".json"], ".txt": "Raced     ", "": BEGINS[".json"]}),
    ],
    ids=["doctor", "bisect", "tune", "bench"],
)  # fmt: skip
def test_the_suffix_decides(words: str, begins: dict[str, str]) -> None:
    for suffix, begin in begins.items():
        assert written(f"{words} -o out{suffix}").startswith(begin), suffix
    for suffix in SUFFIXES.keys() - {*begins, ".htm", ".markdown", ".text"}:
        refused = run(f"{words} -o other{suffix}")
        assert refused.exit_code == 2
        assert all(each in refused.stderr for each in begins if each not in ("", ".log"))
        assert not Path(f"other{suffix}").exists()


def test_a_format_that_is_asked_for_goes_before_the_suffix() -> None:
    assert written("doctor x:y --format sarif -o out.json").startswith(BEGINS[".sarif"])
    assert written("doctor x:y --format screen --force -o out.json").startswith("Examined  ")
    assert json.loads(written("doctor x:y --json -o report"))["format"] == "stoker-diagnosis"
    refused = run("doctor x:y --json -o out.html")
    assert refused.exit_code == 2
    assert "--json and out.html contradict each other" in refused.stderr


def test_a_page_of_a_diagnosis_and_of_a_tuning_have_their_content() -> None:
    assert "STK404" in written("doctor x:y -o doctor.html")
    assert "num_workers=3" in written("tune --show tuning -o tuning.html")


def test_the_report_of_a_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    act = demos.act()
    monkeypatch.setattr(runner, "known", lambda: {"found": act})
    monkeypatch.setattr(runner, "act", lambda name: act)
    monkeypatch.setattr(runner, "perform", lambda *args, **more: demos.performed({"found": act}))
    for suffix, begin in {
        ".html": "<!doctype html>",
        ".md": "## ",
        ".json": "{",
        ".txt": "STOKER",
        "": "<!doctype",
    }.items():
        assert written(f"demo -o demo{suffix}").startswith(begin), suffix
