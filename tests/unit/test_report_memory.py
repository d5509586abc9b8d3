"""Memory over time in a report: what is drawn, what is said of it, and when growth is called out."""

from __future__ import annotations

from typing import Any

import pytest

from stoker._record.readings.memory_curve import MemoryReading, as_columns, thinned
from stoker._record.schema import LoaderRecord
from stoker._tools.render.section import Chart, Part, Prose, Remark, SideBySide, Table
from stoker._tools.report.page.material import Material, ReportedRun
from stoker._tools.report.page.sections import memory
from stoker._tools.report.page.sections.parts.memory_curves import PARENT, memory_of
from stoker._tools.report.verdict.verdict import judge
from tests.unit.records import SECOND, loader, machine, run

MIB = 1 << 20


def read(workers: int, looks: int, *, grows: float = 0.0, level: int | None = None) -> dict[str, list[int]]:
    """Every five seconds; a worker has 20 MiB and grows by so many MiB each time, up to ``level`` times."""
    found = []
    for look in range(looks):
        steps = look if level is None else min(look, level)
        for worker in (*range(workers), PARENT):
            own = (20 + grows * steps * (1 + worker / 100)) * MIB if worker >= 0 else 900 * MIB
            found.append(
                MemoryReading((1 + 5 * look) * SECOND, worker, 100 + worker, int(own) + 50 * MIB, int(own))
            )
    return as_columns(thinned(found))


def made(*loaders: LoaderRecord, **changed: Any) -> tuple[Part, ...]:
    runs = []
    for number, each in enumerate(loaders):
        record = run(each, id=str(number), **changed)
        runs.append(ReportedRun(f"run {number}", record, judge(record)))
    found = memory.section(Material(tuple(runs)))
    return () if found is None else found.parts


def test_steady_growth_is_called_out_with_what_to_do() -> None:
    chart, remark = made(loader(memory=read(4, 40, grows=4)))
    assert isinstance(chart, Chart)
    assert isinstance(remark, Remark)
    assert "worker 3" in chart.summary
    assert "went on to the end" in chart.summary
    assert (remark.code, remark.severity) == ("STK601", "low")
    assert "in an hour" in remark.evidence
    assert remark.edit == "dataset = stoker.share(dataset)"
    assert [row[0] for row in chart.table.rows] == [
        "worker 0",
        "worker 1",
        "worker 2",
        "worker 3",
        "training process",
        "all workers",
    ]


def test_growth_that_stops_is_told_apart() -> None:
    chart, remark = made(loader(memory=read(2, 40, grows=8, level=8)))
    assert isinstance(chart, Chart)
    assert isinstance(remark, Remark)
    assert "levelled off" in chart.summary
    assert "in an hour" not in remark.evidence


@pytest.mark.parametrize(("available", "severity"), [(64 << 30, "low"), (5 << 30, "moderate"), (1 << 30, "high")])  # fmt: skip
def test_how_bad_it_is_depends_on_what_there_is(available: int, severity: str) -> None:
    _, remark = made(loader(memory=read(4, 30, grows=4)), machine=machine(available_bytes=available))
    assert isinstance(remark, Remark)
    assert remark.severity == severity


def test_no_growth_no_remark() -> None:
    (chart,) = made(loader(memory=read(2, 10)))
    assert isinstance(chart, Chart)
    assert "None of them grew" in chart.summary


def test_a_run_that_was_read_once() -> None:
    (chart,) = made(loader(memory=read(2, 1)))
    assert isinstance(chart, Chart)
    assert "by 1 MiB of its own since its first batches" in chart.summary
    assert "vconcat" not in chart.spec


def test_hundreds_of_workers_are_a_band() -> None:
    chart, _ = made(loader(num_workers=192, memory=read(192, 100, grows=2)))
    assert isinstance(chart, Chart)
    each, _ = chart.spec["vconcat"]
    assert len(each["layer"]) == 2
    assert sum(len(layer["data"]["values"]) for layer in each["layer"]) < 500
    assert len(chart.table.rows) < 60


def test_without_workers_it_is_the_training_process() -> None:
    (chart,) = made(loader(executor="inline", num_workers=0, memory=read(0, 5)))
    assert isinstance(chart, Chart)
    assert chart.summary.startswith("The training process occupies 950 MiB.")


def test_an_older_record_has_a_table_of_what_was_read_last() -> None:
    prose, table = made(loader())
    assert isinstance(prose, Prose)
    assert isinstance(table, Table)
    assert table.rows[0][2:] == ("80 MiB", "40 MiB", "1 MiB")
    bare = loader()
    for each in bare.workers:
        each.pss_bytes = None
    assert made(bare) == ()


def test_two_runs_stand_beside_each_other_with_charts_of_their_own() -> None:
    (beside,) = made(loader(memory=read(2, 5)), loader(memory=read(2, 5)))
    assert isinstance(beside, SideBySide)
    charts = [part.id for _, parts in beside.columns for part in parts if isinstance(part, Chart)]
    assert charts == ["memory-0", "memory-1"]


def test_workers_of_every_epoch_are_processes_of_their_own() -> None:
    """Growth is that of one process, and the sum carries on what was read last of each."""
    found = [
        MemoryReading(at * SECOND, 0, pid, 9 * MIB, own * MIB)
        for at, pid, own in ((1, 7, 1), (2, 8, 4), (3, 8, 6))
    ]
    found.append(MemoryReading(2 * SECOND, 1, 9, 9 * MIB, 5 * MIB))
    seen = memory_of(loader(memory=as_columns(sorted(found))))
    assert [each.growth_bytes for each in seen.processes] == [2 * MIB, 0]
    assert [len(each.every) for each in seen.processes] == [3, 1]
    assert [each.private_bytes // MIB for each in seen.together] == [6, 9, 11]
