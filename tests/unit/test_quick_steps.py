"""Where batches come very fast, most of them get no row. They are counted all the same, and no wait is lost."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import Dataset

from stoker import DataLoader
from stoker._record import journal, step_buffer
from stoker._record.run_page import page
from stoker._record.step_buffer import LONG_WAIT_NS, STRETCH_ROWS, QuickSteps, rest_ns
from stoker._runtime.engine import step_writer
from tests.unit.records import MS
from tests.unit.test_running_totals import fed

BATCHES = STRETCH_ROWS + 100


class Numbers(Dataset[int]):
    """One index may be slow, or fail."""

    def __init__(self, slow: int = -1, bad: int = -1) -> None:
        self.slow, self.bad = slow, bad

    def __len__(self) -> int:
        return 2 * BATCHES

    def __getitem__(self, index: int) -> int:
        if index == self.slow:
            time.sleep(2 * LONG_WAIT_NS / 1e9)
        if index == self.bad:
            raise ValueError(index)
        return index


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any speed counts as very fast, a rest has no end of its own, and the run page does not end a stretch early."""
    monkeypatch.setattr(page, "PERIOD_NS", 1 << 61)
    monkeypatch.setattr(step_buffer, "QUICK_NS", 1 << 50)
    monkeypatch.setattr(step_buffer, "_REST", 1 << 20)
    monkeypatch.setattr(step_buffer, "_LONGEST_REST_NS", 1 << 60)
    monkeypatch.setattr(step_writer, "LONG_WAIT_NS", 1 << 60)


def record(loader: Any) -> Any:
    recorder = loader._observer()
    return recorder.record(weigh=False).loaders[0]


def test_fast_stretches_are_followed_by_a_rest() -> None:
    assert rest_ns(256 * 50_000, 256) == 15 * 256 * 50_000
    assert rest_ns(256 * 400_000, 256) == 250_000_000
    assert rest_ns(256 * 600_000, 256) == 0


def test_sums_go_on_without_rows() -> None:
    totals = fed(40)
    before, blamed = totals.totals.wait_ns, len(totals.blame())
    steps = QuickSteps()
    last_ns = 404 * MS
    for number in range(10):
        asked_ns = last_ns + (1 + 10 * number) * MS
        steps.note(asked_ns, asked_ns + 4 * MS, rows=16, nbytes=100, ready=number < 3)
    assert totals.count_quick(steps, (0, last_ns)) == (0, last_ns + 95 * MS)
    found = totals.totals
    assert (found.steps, found.estimated_steps, found.rows, found.bytes, found.ready) == (
        50,
        10,
        800,
        5000,
        3,
    )
    assert (found.wait_ns - before, found.step_ns) == (40 * MS, (39 * 6 + 55) * MS)
    assert sum(found.wait_histogram) == 50
    assert abs(sum(each.ns for each in totals.blame()) - found.wait_ns) <= blamed
    assert sum(one.tasks for one in totals.workers.values()) == 50
    assert (totals.quick, totals.dropped, len(totals.rows())) == (10, 10, 40)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("workers", [0, 1])
def test_every_batch_is_counted(workers: int) -> None:
    with DataLoader(Numbers(), batch_size=2, num_workers=workers) as loader:
        batches = iter(loader)
        for _ in range(STRETCH_ROWS + 50):
            next(batches)
        under_way = record(loader)
        assert len(list(batches)) == 50
        found = record(loader)
    assert under_way.totals.steps == STRETCH_ROWS + 50
    assert (found.totals.steps, found.totals.rows) == (BATCHES, 2 * BATCHES)
    assert found.totals.estimated_steps >= 100
    assert len(found.steps["seq"]) == STRETCH_ROWS
    assert found.steps_dropped == 100
    assert abs(sum(each.ns for each in found.blame) - found.totals.wait_ns) <= 10
    assert sum(found.totals.wait_histogram) == BATCHES


@pytest.mark.usefixtures("quick")
def test_a_long_wait_gets_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_writer, "LONG_WAIT_NS", LONG_WAIT_NS)
    with DataLoader(Numbers(slow=2 * STRETCH_ROWS + 21), batch_size=2) as loader:
        assert len(list(loader)) == BATCHES
        found = record(loader)
    assert found.totals.steps == BATCHES
    assert STRETCH_ROWS + 10 in found.steps["seq"]
    place = found.steps["seq"].index(STRETCH_ROWS + 10)
    assert found.steps["given_ns"][place] - found.steps["asked_ns"][place] > LONG_WAIT_NS


@pytest.mark.usefixtures("quick")
def test_a_failed_batch_gets_its_row() -> None:
    with DataLoader(Numbers(bad=2 * STRETCH_ROWS + 21), batch_size=2) as loader:
        batches = iter(loader)
        for _ in range(STRETCH_ROWS + 10):
            next(batches)
        with pytest.raises(ValueError, match=str(2 * STRETCH_ROWS + 21)):
            next(batches)
        assert len(list(batches)) == 89
        found = record(loader)
    assert found.totals.steps == BATCHES
    assert found.steps["seq"][STRETCH_ROWS:] == list(range(STRETCH_ROWS + 10, BATCHES))


@pytest.mark.usefixtures("quick")
def test_the_journal_says_what_it_leaves_out(tmp_path: Path) -> None:
    with DataLoader(Numbers(), batch_size=2, record=tmp_path / "run.jsonl") as loader:
        for _ in range(2):
            assert len(list(loader)) == BATCHES
    recorder: Any = loader._observer()
    recorder.close()
    found = journal.read(tmp_path / "run.jsonl").loaders[0]
    assert found.totals.steps == 2 * BATCHES
    assert len(found.steps["seq"]) + found.steps_dropped == 2 * BATCHES
