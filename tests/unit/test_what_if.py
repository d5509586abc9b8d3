"""``stoker report --what-if``: a record, replayed otherwise."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from stoker._record import journal
from stoker._record.schema import LoaderRecord
from stoker._runtime.simulation.predictions import SimulationCase
from stoker._runtime.simulation.setting import Setting
from stoker._runtime.simulation.work import Demand
from stoker._tools.report.what_if.recorded_work import MOST_WINDOW, recall
from stoker._tools.report.what_if.what_if import parse
from stoker.argument_numbers import MOST_WORKERS
from stoker.cli.main import main
from stoker.errors import RecordError
from tests.unit.records import MS, loader, machine, run, steps

CASE = SimulationCase(Setting(workers=4, prefetch=2), 4.0, Demand(10 * MS), window=8)


def told(**changed: Any) -> LoaderRecord:
    """Two workers that take 30 ms for a batch, and steps of 10 ms: a batch every 15 ms."""
    table = steps(64, workers=2, make_ms=30, step_ms=10)
    totals = {"steps": 64, "step_ns": 64 * 10 * MS, "wait_ns": 64 * 5 * MS, "open_ns": 0, "window": 4}
    usual: dict[str, Any] = {
        "steps": table,
        "totals": totals,
        "load": {"busy_cpu_ns": None, "loop_cpu_ns": None},
    }
    return loader({("fetch", 0, "io"): 0.32}, **(usual | changed))


def asked(path: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["report", str(path), *arguments])


def test_a_record_is_recalled_as_it_was() -> None:
    found = recall(told(), machine())
    assert found is not None
    assert found.work.batch_ns[:2] == (30 * MS, 30 * MS)
    assert found.work.off_share == pytest.approx(0.9)
    assert (found.case.setting.workers, found.case.window, found.case.cpus) == (2, 4, 8.0)
    assert found.case.demand == Demand(10 * MS, 0, "record")
    assert found.interval_ns == pytest.approx(15 * MS, rel=0.02)
    assert found.case.answer(found.work).interval_ns == pytest.approx(15 * MS, rel=0.02)


def test_sums_stand_in_for_batches() -> None:
    found = recall(told(steps={}), machine(usable=None, affinity=None, cpus=None))
    assert found is not None
    assert len(found.work.batch_ns) == 1
    assert len(found.notes) == 2
    assert recall(loader(totals={"steps": 0}), machine()) is None


@pytest.mark.parametrize(
    "changed",
    [
        {"totals": {"steps": 64, "window": 1 << 62}},
        {"totals": {"steps": 64, "window": -5}},
        {"num_workers": 2, "options": {"num_workers": 1 << 62}},
        {"options": {"threads_per_worker": 1 << 62}},
    ],
)
def test_a_record_that_names_more_than_a_loader_has_is_cut(changed: dict[str, Any], tmp_path: Path) -> None:
    """The replay went through the window step by step: a record of 17 kB kept the report busy for ever."""
    made = loader({("fetch", 0, "io"): 0.3}, **changed)
    found = recall(made, machine())
    assert found is not None
    setting = found.case.setting
    assert 1 <= setting.workers <= MOST_WORKERS
    assert 1 <= setting.threads <= MOST_WORKERS
    assert 1 <= (found.case.window or 1) <= MOST_WINDOW
    assert "threads_per_worker" in made.options or "cut for the replay" in " ".join(found.notes)


def test_a_window_beyond_all_bounds_is_answered(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    journal.write(run(told(totals={"steps": 64, "step_ns": 64 * 10 * MS, "window": 1 << 62})), path)
    answered = asked(path, "--what-if", "workers=+1")
    assert answered.exit_code == 0, answered.output
    assert "cut for the replay" in " ".join(answered.output.split())


def test_neighbours_keep_workers_waiting_as_they_did() -> None:
    busy = told(load={"busy_cpu_ns": 6 * 10**9, "own_cpu_ns": 10**9, "wall_ns": 10**9, "loop_cpu_ns": None})
    busy.steps["runq_ns"] = [6 * MS] * 64
    alone, crowded = recall(told(steps=busy.steps), machine()), recall(busy, machine())
    assert alone is not None
    assert crowded is not None
    assert alone.work.batch_ns == crowded.work.batch_ns
    assert alone.work.batch_ns[0] == 24 * MS
    assert alone.work.queued_ns == ()
    assert crowded.work.queued_ns[0] == 6 * MS
    assert "5.0 CPUs" in crowded.notes[0]
    assert crowded.case.answer(crowded.work).interval_ns == pytest.approx(15 * MS, rel=0.02)


@pytest.mark.parametrize(
    ("text", "workers", "window", "cpus", "step_ms"),
    [
        ("workers=8", 8, 16, 4, 10),
        ("window=32,workers=x2", 8, 32, 4, 10),
        ("prefetch=4", 4, 16, 4, 10),
        ("cpus=+4,step=/2", 4, 8, 8, 5),
        ("step=2.5", 4, 8, 4, 2.5),
        ("step=1s", 4, 8, 4, 1000),
        ("step=-3ms, cpus=-100", 4, 8, 0.1, 7),
        ("workers=0", 0, 0, 4, 10),
    ],
)
def test_questions_are_read(text: str, workers: int, window: int, cpus: float, step_ms: float) -> None:
    case = parse(text).of(CASE)
    assert (case.setting.workers, case.window, case.cpus) == (workers, window, cpus)
    assert case.demand.step_ns == int(step_ms * MS)


def test_order_threads_and_bursts_are_read() -> None:
    case = parse("order=any,threads=8,burst=4").of(CASE)
    assert (case.in_order, case.setting.threads) == (False, 8)
    assert case.demand == Demand(40 * MS, burst=4)


@pytest.mark.parametrize("text", ["", "workers", "workers=many", "colour=3", "workers=3ms", "order=odd", ","])
def test_what_cannot_be_read_is_said(text: str) -> None:
    with pytest.raises(ValueError, match=r"say workers=8|order is"):
        parse(text)


def test_the_command_shows_a_table_and_its_own_error(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    journal.write(run(told()), path)
    shown = asked(path, "--what-if", "workers=4", "--what-if")
    assert shown.exit_code == 0
    assert shown.output.startswith("What if")
    assert "is off by" in shown.output
    assert "an accelerator twice as fast" in shown.output
    data = json.loads(asked(path, "--what-if", "workers=4", "--json").output)
    (only,) = data["loaders"]
    assert abs(only["error"]) < 0.05
    assert only["cases"][0]["interval_ns"] < only["replayed"]["interval_ns"]
    wrong = asked(path, "--what-if", "workers=many")
    assert wrong.exit_code == 2
    assert "workers=8" in wrong.output


def test_an_empty_record_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    journal.write(run(loader(totals={"steps": 0, "wait_ns": 0})), path)
    refused = asked(path, "--what-if")
    assert refused.exit_code == 2
    assert "nothing to replay" in refused.output


@pytest.mark.parametrize("name", ["workers", "prefetch", "window", "cpus", "step", "threads", "burst"])
@pytest.mark.parametrize("sign", ["", "+", "*"])
def test_numbers_that_would_become_infinite_are_refused(name: str, sign: str) -> None:
    with pytest.raises(ValueError, match=f"the number of {name} is more than 1000000000"):
        parse(f"{name}={sign}{'9' * 400}")
    with suppress(RecordError):
        parse(f"{name}={sign}1000000000").of(CASE)


@pytest.mark.parametrize("text", ["workers=99999999", "workers=9000,prefetch=9000", "burst=1000000"])
def test_more_than_a_replay_goes_through_is_refused(text: str) -> None:
    with pytest.raises(RecordError, match="a replay goes to"):
        parse(text).of(CASE)


def test_nothing_is_divided_by_nothing() -> None:
    with pytest.raises(ValueError, match="cannot read 'step=/0'"):
        parse("step=/0")
