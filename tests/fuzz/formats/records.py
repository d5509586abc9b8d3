"""Run records: journals, folders of them, and all that is made of a record (verdict, report, trace, replay)."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

from stoker._record import journal
from stoker._record.schema import Event, Period, ReceiptSummary, RunRecord, SlowestSample, dumps
from stoker._tools.profile import collected_records
from stoker._tools.profile.supervisor import ScriptExit
from stoker._tools.render import json_form, markdown, text
from stoker._tools.report.page import build, sources
from stoker._tools.report.trace import trace
from stoker._tools.report.verdict import screen
from stoker._tools.report.verdict.verdict import judge
from stoker._tools.report.what_if import what_if
from stoker.errors import RecordError, TraceError
from tests.fuzz import mutation
from tests.fuzz.format import Format
from tests.unit.records import MS, SECOND, loader, run, steps, worker

WAITS_S = {("fetch", 0, "io"): 0.9, ("collate", 1, "compute"): 0.2, ("start", -1, "start_up"): 0.1}


def _whole() -> RunRecord:
    """A record in which every list has something."""
    first = loader(
        WAITS_S,
        steps=steps(24),
        memory={
            "at_ns": [0, SECOND],
            "worker": [-1, 0],
            "pid": [4000, 4001],
            "pss_bytes": [1 << 20, 2 << 20],
            "private_bytes": [1 << 19, 1 << 20],
        },
        events=[Event(5 * MS, "worker_lost", "killed"), Event(9 * MS, "workers", "more")],
        slowest=[SlowestSample(17, 900 * MS, 1, 0, 3, 2, 800 * MS)],
        periods=[Period(0, SECOND, 24, 120 * MS, 240 * MS, {"io": 120 * MS})],
        receipts=[ReceiptSummary(0, 0, 1, False, 0, 24, 1536, True, 7, "0" * 16, "f" * 16)],
    )
    return run(first, loader({("fetch", 0, "compute"): 0.3}, name="valid", engine="torch"))


def _lines() -> bytes:
    """A journal of three lines, each with the steps since the one before."""
    table = steps(24)
    found = []
    for begin in (0, 8, 16):
        part = {name: column[begin : begin + 8] for name, column in table.items()}
        found.append(dumps(run(loader(WAITS_S, steps=part))))
    return ("\n".join(found) + "\n").encode()


def seeds() -> list[bytes]:
    """Records of two loaders, of none, of threads, and a journal."""
    threads = run(
        loader({("fetch", 0, "gil"): 1.0}, executor="thread", workers=[worker(0, cpu=0.9)]),
        id="5000-1",
        pid=5000,
        rank=1,
        world_size=2,
        ended=False,
        exit=None,
    )
    return [_data(_whole()), _data(threads), _data(run()), _lines()]


def _data(record: RunRecord) -> bytes:
    return f"{dumps(record)}\n".encode()


def _read(data: bytes, folder: Path) -> None:
    path = folder / "run.jsonl"
    path.write_bytes(data)
    verdict = judge(journal.read(path), price_per_hour=2.0)
    screen.render(verdict)
    json.dumps(screen.as_json(verdict), default=repr)


_FORMS = (json_form.render, markdown.render, lambda report: text.render(report, 80))
_QUESTIONS = [what_if.parse(each) for each in ("workers=8,window=32", "cpus=+4,step=/2", "order=any")]


def _report(data: bytes, folder: Path) -> None:
    """A report in all forms but HTML, a trace and a replay."""
    path = folder / "run.jsonl"
    path.write_bytes(data)
    report = build.report(sources.read([path], watts=300.0))
    for render in _FORMS:
        render(report).encode("utf-8", "replace")
    record = journal.read(path)
    trace.write(record, folder / "trace.json.gz")
    what_if.lines(what_if.answer(record, _QUESTIONS), 80)


def _gather(data: bytes, folder: Path) -> None:
    """A folder that a script's processes left: one of its records is damaged."""
    (folder / "1.jsonl").write_bytes(data)
    (folder / "2.jsonl").write_bytes(_OTHER)
    (folder / "3.left.txt").write_bytes(data[-200:])
    outcome = ScriptExit(4000, 1, 1_790_000_000 * SECOND, 7 * SECOND)
    gathered = collected_records.gather(folder, outcome, ["train.py"])
    path = folder / "whole.json"
    journal.write(gathered.record, path)
    journal.read(path)


_OTHER = _data(run(loader(WAITS_S), id="4001-1", pid=4001))


def mutate(dice: Random, data: bytes) -> bytes:
    """Mostly of the structure; now and then the next line belongs to another run."""
    data = mutation.any_json(dice, data)
    if dice.random() < 0.1:
        data += dice.choice(_ALL)
    return data


_ALL = seeds()
FORMATS = (
    Format("record", seeds, _read, (RecordError,), mutate, weight=4),
    Format("report", seeds, _report, (RecordError, TraceError), mutate, weight=1),
    Format("run-folder", seeds, _gather, (RecordError,), mutate, weight=2),
)
