"""What a recorder shows: who it is at once, rows that are held back too, and what happened while somebody waits."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from stoker._record.recorder import Recorder
from stoker._record.run_page import page as pages
from stoker._record.schema import STEP_COLUMNS, StepRow
from stoker._runtime.pool.loader_stats import LoaderStats
from tests.unit import records


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    recorder = Recorder(name="train", engine="stoker", executor="process", dataset="Images")
    yield recorder
    recorder.close()


def write(recorder: Recorder, step_buffer: Any, count: int) -> None:
    table = records.steps(count)
    began_ns = recorder.run.began_ns
    for row in range(count):
        values = {name: table[name][row] for name in STEP_COLUMNS}
        moments = {
            name: value + began_ns
            for name, value in values.items()
            if name in ("asked_ns", "got_ns", "planned_ns", "given_ns")
            or (name.endswith("ed_ns") and value and name != "metered_ns")
        }
        step_buffer.write(StepRow(**{**values, **moments, "depth": 3, "undelivered_bytes": 77}))


def test_it_says_who_it_is_before_the_first_batch(recorder: Recorder) -> None:
    assert recorder.shown.latest is None
    recorder.step_buffer()
    summary = recorder.shown.latest
    assert summary is not None
    assert (summary["name"], summary["dataset"], summary["whole"]["steps"], summary["depth"]) == (
        "train",
        "Images",
        0,
        None,
    )


def test_rows_that_are_held_back_are_shown(recorder: Recorder) -> None:
    step_buffer = recorder.step_buffer()
    write(recorder, step_buffer, 5)
    recorder.tick(step_buffer, recorder.run.began_ns + records.SECOND)
    summary, page = recorder.shown.latest, recorder.page
    assert summary is not None
    assert page is not None
    assert (summary["whole"]["steps"], page.words[pages.STEPS]) == (5, 5)
    assert (summary["depth"], summary["undelivered_bytes"]) == (3, 77)
    assert page.words[pages.GIVEN_NS] > 0
    assert recorder.record(weigh=False).loaders[0].totals.steps == 5, "and are counted once"


def test_an_event_is_shown_at_once_when_nothing_else_is(recorder: Recorder) -> None:
    step_buffer = recorder.step_buffer()
    recorder.connect(counts=lambda: {"stalls": 4})
    assert recorder.shown.latest is not None
    recorder.shown.latest["at_ns"] -= 2 * pages.PERIOD_NS
    recorder.event("stall", "batch 3 does not come")
    shown = recorder.shown.latest
    assert shown["event"] is not None
    assert (shown["event"]["kind"], shown["stalls"]) == ("stall", 4)
    recorder.tick(step_buffer, recorder.run.began_ns + records.SECOND)
    recorder.event("stall", "and does not come")
    assert recorder.shown.latest["event"] is not None


def test_a_window_that_deepens_is_told_once_with_its_reason(
    recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "stoker")
    depths = iter([4, 4, 6, 4, 5, 6, 6])
    recorder.connect(window=lambda: next(depths))
    for _ in range(6):
        record = recorder.record(steps=False, weigh=False)
        recorder._running_totals.totals.window = record.loaders[0].totals.window
    [event] = record.loaders[0].events
    assert (event.kind, event.reason.partition(":")[0]) == (
        "window",
        "the window deepened from 4 to 6 batches",
    )
    assert [each.getMessage() for each in caplog.records] == [f"train: {event.reason}"]


def test_a_stall_is_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "stoker")
    told: list[tuple[str, str]] = []
    stats = LoaderStats("train", tell=lambda kind, reason: told.append((kind, reason)))
    stats.note_stall("DataLoader 'train' has waited 30.0 s for batch 3; worker 1 has been on dataset index 7")
    assert [each.getMessage() for each in caplog.records] == [told[0][1]]
    assert (told[0][0], stats.stalls) == ("stall", 1)
