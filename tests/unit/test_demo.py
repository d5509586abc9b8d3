"""The demo's frame, with acts that stand in: the programme, the record, the screen, the page."""

from __future__ import annotations

import io
import json
import os
import signal
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker._record.run_identity import run_here
from stoker._record.schema import Machine, RunRecord
from stoker._tools.demo import page, record, runner, summary
from stoker._tools.demo.act import ActContext
from stoker._tools.render.section import Chart, Part, SideBySide
from stoker.errors import RecordError
from tests.unit import demos


class Terminal(io.StringIO):
    """A terminal with an encoding of its own."""

    def __init__(self, encoding: str = "utf-8") -> None:
        super().__init__()
        self._encoding = encoding

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding

    def isatty(self) -> bool:
        return True


def perform(acts: dict[str, Any], **more: Any) -> dict[str, Any]:
    return runner.perform(acts, quick=True, tell=lambda what, share: None, **more)


def fail(stage: ActContext) -> dict[str, Any]:
    raise OSError("no such luck")


def interrupt(stage: ActContext) -> dict[str, Any]:
    raise KeyboardInterrupt


def test_acts_are_performed_in_order_and_told_of() -> None:
    told: list[tuple[str, float]] = []
    folders: list[str] = []

    def run(stage: ActContext) -> dict[str, Any]:
        assert os.path.isdir(stage.folder)
        folders.append(stage.folder)
        assert (stage.quick, stage.cpus >= 1, stage.budget_s) == (True, True, 1.0)
        stage.tell("half", 0.5)
        stage.tell("beyond", 7.0)
        return {"found": len(folders)}

    acts = {"gap": demos.act("First", run=run), "killed": demos.act("Second", run=run)}
    found = runner.perform(acts, quick=True, tell=lambda what, share: told.append((what, share)))
    assert [(name, each["result"]) for name, each in found["acts"].items()] == [
        ("gap", {"found": 1}),
        ("killed", {"found": 2}),
    ]
    assert told == [
        ("First", 0.0), ("First: half", 0.25), ("First: beyond", 0.5),
        ("Second", 0.5), ("Second: half", 0.75), ("Second: beyond", 1.0),
    ]  # fmt: skip
    assert not any(map(os.path.exists, folders))
    assert record.checked(json.loads(record.dumps(found)))["acts"] == found["acts"]
    assert found["machine"]["versions"]["python"]
    assert not found["interrupted"]


def test_an_act_that_fails_fails_alone() -> None:
    found = perform({"gap": demos.act("Broken", run=fail), "killed": demos.act()})
    assert found["acts"]["gap"]["failure"] == "OSError: no such luck"
    assert found["acts"]["gap"]["result"] is None
    assert found["acts"]["killed"]["result"] == {"found": 1}


def test_ctrl_c_ends_with_what_is_done() -> None:
    found = perform({"gap": demos.act(), "killed": demos.act(run=interrupt), "doctor": demos.act()})
    assert found["interrupted"]
    assert list(found["acts"]) == ["gap", "killed"]
    assert found["acts"]["gap"]["result"] == {"found": 1}
    assert found["acts"]["killed"]["failure"] == "interrupted"


def test_ctrl_c_that_an_act_makes_the_best_of_ends_the_demo_too() -> None:
    def settle(stage: ActContext) -> dict[str, Any]:
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        return {"found": 1}

    before = signal.getsignal(signal.SIGINT)
    found = perform({"gap": demos.act(run=settle), "killed": demos.act()})
    assert found["interrupted"]
    assert {name: each["result"] for name, each in found["acts"].items()} == {"gap": {"found": 1}}
    assert signal.getsignal(signal.SIGINT) is before


def test_acts_get_less_time_when_there_is_not_enough_for_all() -> None:
    budgets: list[float] = []

    def run(stage: ActContext) -> dict[str, Any]:
        budgets.append(stage.budget_s)
        return {}

    acts = {name: demos.act(seconds=(100.0, 100.0), run=run) for name in ("gap", "killed")}
    perform(acts, limit_s=150.0)
    assert budgets[0] <= 75.0
    assert all(60.0 <= each <= 100.0 for each in budgets)
    perform(acts, limit_s=1.0)
    assert budgets[2:] == [60.0, 60.0]


def test_all_acts_are_there_and_fit_into_the_time_that_is_promised() -> None:
    for name, each in runner.known().items():
        assert each.TITLE, name
        assert 0 < each.SECONDS[0] <= each.SECONDS[1]
    usual = [each for name, each in runner.known().items() if name not in runner.ASKED_FOR]
    assert sum(each.SECONDS[0] for each in usual) <= 40
    assert sum(each.SECONDS[1] for each in usual) <= 180
    with pytest.raises(KeyError):
        runner.act("sleeping")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": "stoker-run"}, "no demo's record"),
        ({"version": 99}, "version 99"),
        ({"version": None}, "does not say its version"),
        ({"acts": {"gap": {"title": 3}}}, "damaged"),
        ({"acts": []}, "damaged"),
        ({"machine": None}, "damaged"),
        ({"seconds": "long"}, "damaged"),
    ],
)
def test_what_is_no_record_of_a_demo_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(RecordError, match=said):
        record.checked(demos.performed({"gap": demos.act()}) | change)
    with pytest.raises(RecordError):
        record.checked([])


def _said(lines: list[str], result: dict[str, Any]) -> list[str]:
    return lines


@settings(max_examples=40, deadline=None)
@given(
    told=st.lists(
        st.lists(st.text("ab ×é–", min_size=1, max_size=76), min_size=1, max_size=4), min_size=1, max_size=7
    ),
    width=st.sampled_from([60, 80, 100]),
    interrupted=st.booleans(),
)
def test_it_fits_on_one_screen(told: list[list[str]], width: int, interrupted: bool) -> None:
    said = dict(zip(runner.ACTS, told, strict=False))
    acts = {name: demos.act(lines=partial(_said, each)) for name, each in said.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "act", acts.__getitem__)
        found = demos.performed(acts, interrupted=interrupted, others=0.5)
        shown = summary.lines(found, ["To look at: stoker-report.html"], width)
    assert len(shown) <= 24
    assert max(len(each.text) for each in shown) <= min(width, 80)
    assert [each.text.split()[0] for each in shown if each.text.startswith(tuple(acts))] == list(acts)
    assert shown[-1].text == "To look at: stoker-report.html"


@pytest.mark.parametrize("colour", [False, True])
def test_a_terminal_of_60_columns(monkeypatch: pytest.MonkeyPatch, colour: bool) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    if not colour:
        monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(runner, "act", lambda name: demos.act(lines=lambda result: ["eight × " * 9]))
    screen = Terminal()
    summary.show(
        demos.performed({"gap": demos.act(), "killed": "OSError: no"}), ["To look at: x.html"], screen
    )
    shown = screen.getvalue()
    assert ("\x1b[31m" in shown) == colour
    plain = [line for line in shown.splitlines() if "\x1b" not in line]
    assert all(len(line) <= 60 for line in plain)
    assert "gap" in shown
    assert "OSError: no" in shown
    assert "×" in shown


def test_a_file_that_knows_ascii_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "act", lambda name: demos.act(lines=lambda result: ["7.6× – µs"]))
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding="ascii")
    summary.show(demos.performed({"gap": demos.act()}), ["done"], file)
    file.flush()
    assert b"7.6x - us" in raw.getvalue()
    assert b"\x1b" not in raw.getvalue()


def ids(parts: tuple[Part, ...]) -> list[str]:
    found = [each.id for each in parts if isinstance(each, Chart)]
    return found + [
        name
        for each in parts
        if isinstance(each, SideBySide)
        for _, inner in each.columns
        for name in ids(inner)
    ]


def test_the_page_has_every_act_and_no_id_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "act", lambda name: demos.act(f"Act {name}"))
    acts = {
        "gap": demos.act(),
        "killed": demos.act(),
        "doctor": "OSError: no such luck",
        "next-year": demos.act("New"),
    }
    made = page.report(demos.performed(acts, interrupted=True, others=0.9))
    assert [each.id for each in made.sections] == ["demo", "found", "found-2", "doctor", "next-year"]
    assert [name for each in made.sections for name in ids(each.parts)] == ["chart", "chart-2"]
    assert made.headline == "found 1"
    assert "OSError: no such luck" in str(made.sections[3])
    assert "does not know this act" in str(made.sections[4])
    assert "interrupted" in str(made.sections[0])
    assert "90%" in str(made.sections[0])
    assert made.raw["demo"]["acts"]


def test_runs_that_an_act_recorded_get_the_sections_of_a_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "act", lambda name: demos.act("A run"))
    found = demos.performed({"profile": demos.act("A run")})
    run = RunRecord(run_here(), Machine()).as_dict()
    found["acts"]["profile"]["result"] = {"found": 1, "runs": [{"label": "torch", "record": run}]}
    assert [each.label for each in page.runs(found["acts"]["profile"]["result"])] == ["torch"]
    assert page.report(found).sections[1].id == "found"
    run["version"] = 99
    with pytest.raises(RecordError, match="version 99"):
        page.report(found)


def test_a_result_that_lacks_something_is_damage() -> None:
    found = demos.performed({"gap": demos.act()})
    found["acts"]["gap"]["result"] = {"gaps_ms": 3}
    with pytest.raises(RecordError, match="damaged: act gap"):
        page.report(found)


@pytest.mark.parametrize(
    "changed",
    [{"seconds": 10**400}, {"seconds": float("nan")}, {"seconds": -1}, {"machine": {"versions": [1]}}],
)
def test_a_record_with_what_no_demo_writes_is_refused_in_words(changed: dict[str, Any]) -> None:
    with pytest.raises(RecordError, match="this demo's record is damaged"):
        page.report(demos.performed({}) | changed)
