"""Traces are valid whatever the table says, tell what the table says, and merge with a profiler's on its time line."""

from __future__ import annotations

import copy
import gzip
import json
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker._record.schema import STEP_COLUMNS, Event, LoaderRecord, RunRecord
from stoker._tools.report.trace import trace
from stoker._tools.report.trace.validation import violations
from stoker.errors import RecordError, TraceError
from tests.unit import records

MS = records.MS


def drawn(record: RunRecord) -> dict[str, list[tuple[str, float, float, int]]]:
    """Spans by the name of their track: name, begin and end in ms, depth."""
    found = trace.build(record)["traceEvents"]
    assert violations(found) == []
    names = {each["tid"]: each["args"]["name"] for each in found if each["name"] == "thread_name"}
    spans: dict[str, list[tuple[str, float, float, int]]] = defaultdict(list)
    held: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for each in found:
        if each["ph"] == "B":
            held[each["tid"]].append(each)
        elif each["ph"] == "E":
            begun = held[each["tid"]].pop()
            depth = len(held[each["tid"]])
            spans[names[each["tid"]]].append((each["name"], begun["ts"] / 1000, each["ts"] / 1000, depth))
    return {name: sorted(each, key=lambda span: (span[1], span[3])) for name, each in spans.items()}


def of(table: dict[str, list[int]], **changed: Any) -> RunRecord:
    return records.run(records.loader(steps=table, **changed))


def test_a_run_is_drawn_as_it_was() -> None:
    tracks = drawn(of(records.steps(6, workers=2, make_ms=30, step_ms=10)))
    assert sorted(tracks) == ["main loop", "reorder 0", "worker 0", "worker 1"]
    # The first two batches have no moment of their taking: it is 0, which stands for not measured.
    assert tracks["worker 0"][:4] == [
        ("batch 2", 30, 60, 0), ("fetch", 30, 58, 1), ("collate", 58, 59, 1), ("hand_over", 59, 60, 1),
    ]  # fmt: skip
    first = [span for span in tracks["main loop"] if span[1] < 50 and span[3] == 0]
    assert first == [
        ("next 0", 0, 30.05, 0), ("step 0", 30.05, 40, 0), ("next 1", 40, 40.05, 0), ("step 1", 40.05, 50, 0),
    ]  # fmt: skip
    # The fourth was made at 60, with the third, and taken when that one's step was done.
    assert ("batch 3", 60, 70, 0) in tracks["reorder 0"]


def test_the_stages_of_a_wait_are_those_of_the_batch_that_was_waited_for() -> None:
    taken_up = {"received_ns": 15, "fetched_ns": 35, "collated_ns": 40, "sent_ns": 44}
    table = row(asked_ns=10, got_ns=50, planned_ns=52, given_ns=55, **taken_up)
    tracks = drawn(of(table))
    assert [span[:3] for span in tracks["main loop"]] == [
        ("next 0", 10, 55), ("wait", 10, 50), ("queue", 10, 15), ("fetch", 15, 35), ("collate", 35, 40),
        ("hand_over", 40, 44), ("wake", 44, 50), ("plan", 50, 52), ("open", 52, 55),
    ]  # fmt: skip


def test_a_split_batch_waits_for_its_last_part() -> None:
    table = row(asked_ns=10, got_ns=50, given_ns=50, received_ns=15, sent_ns=20)
    later = row(asked_ns=10, got_ns=50, given_ns=50, received_ns=16, sent_ns=44, part=1, worker=1)
    for name in STEP_COLUMNS:
        table[name] += later[name]
    tracks = drawn(of(table))
    assert [span[:3] for span in tracks["reorder 0"]] == [("batch 0", 44, 50)]
    assert [span[:3] for span in tracks["worker 1"]] == [("batch 0", 16, 44)]
    arrows = [each for each in trace.build(of(table))["traceEvents"] if each["ph"] in "stf"]
    assert sorted(each["ph"] for each in arrows) == ["f", "f", "s", "s"]  # no step is known to follow


def test_an_arrow_leads_from_the_worker_through_the_reorder_buffer_to_the_step() -> None:
    found = trace.build(of(records.steps(5)))["traceEvents"]
    names = {each["tid"]: each["args"]["name"] for each in found if each["name"] == "thread_name"}
    inside: dict[int, list[str]] = defaultdict(list)
    way: dict[int, list[tuple[str, str]]] = defaultdict(list)
    for each in sorted(found, key=lambda event: event["ts"]):
        if each["ph"] == "B":
            inside[each["tid"]].append(each["name"])
        elif each["ph"] == "E":
            inside[each["tid"]].pop()
        elif each["ph"] in "stf":
            way[each["id"]].append((names[each["tid"]].split()[0], inside[each["tid"]][-1]))
    assert sorted(way.values()) == [
        [("worker", "hand_over"), ("reorder", "batch 2"), ("main", "step 2")],
        [("worker", "hand_over"), ("reorder", "batch 3"), ("main", "step 3")],
        [("worker", "hand_over"), ("reorder", "batch 4"), ("main", "plan")],  # no step is known to follow
    ]


def test_steps_end_with_their_epoch_and_where_the_record_has_a_hole() -> None:
    table = records.steps(6)
    table["epoch"] = [0, 0, 0, 1, 1, 1]
    table["seq"] = [0, 1, 2, 0, 1, 2]
    steps = [span[0] for span in drawn(of(table))["main loop"] if span[0].startswith("step")]
    assert steps == ["step 0", "step 1", "step 0", "step 1"]
    table["epoch"] = [0] * 6  # pools that count from the beginning each
    assert steps == [span[0] for span in drawn(of(table))["main loop"] if span[0].startswith("step")]
    table["seq"] = [0, 1, 2, 93, 94, 95]
    record = of(table, steps_dropped=90)
    assert "step 2" not in {span[0] for span in drawn(record)["main loop"]}
    left_out = [each for each in trace.build(record)["traceEvents"] if each["ph"] == "i"]
    assert [(each["name"], each["ts"]) for each in left_out] == [
        ("steps left out", table["given_ns"][2] / 1000)
    ]


def test_events_and_counters_are_there() -> None:
    record = of(records.steps(3), events=[Event(5 * MS, "restart", "worker 1 was killed (SIGKILL)")])
    found = trace.build(record)["traceEvents"]
    assert [(each["name"], each["ts"], each["args"]["reason"]) for each in found if each["ph"] == "i"] == [
        ("restart", 5000, "worker 1 was killed (SIGKILL)")
    ]
    assert {each["name"] for each in found if each["ph"] == "C"} == {"depth", "undelivered", "stall"}
    stalls = [each["args"]["percent"] for each in found if each["name"] == "stall"]
    assert stalls[0] == 100


def test_batches_that_the_loop_made_itself_have_no_worker() -> None:
    table = row(asked_ns=10, got_ns=50, given_ns=50, received_ns=10, fetched_ns=48, sent_ns=50, worker=-1)
    assert sorted(drawn(of(table))) == ["main loop"]


@given(seed=st.integers(0, 1 << 32), span=st.sampled_from([5, 60, 10**15]))
@settings(max_examples=150, deadline=None)
def test_any_table_gives_a_valid_trace(seed: int, span: int) -> None:
    chance = random.Random(seed)
    loaders = []
    for _ in range(chance.randint(1, 2)):
        count = chance.randint(0, 12)
        table = {
            name: [chance.randint(-1, span if name.endswith("_ns") else 3) for _ in range(count)]
            for name in STEP_COLUMNS
            if chance.random() > 0.03
        }
        happened = [Event(chance.randint(-1, span), "restart", "") for _ in range(chance.randint(0, 3))]
        loaders.append(records.loader(steps=table, events=happened, steps_dropped=chance.choice([0, 7])))
    record = records.run(*loaders)
    assert violations(trace.build(record)["traceEvents"]) == []
    # On a time line whose numbers are so large that they have lost their nanoseconds, too.
    assert violations(trace.events(record, base_unix_ns=0)) == []


@pytest.mark.parametrize(
    "damage",
    [
        "overlap",
        "unpaired",
        "open",
        "back",
        "unnamed",
        "shared",
        "counter",
        "loose arrow",
        "late arrow",
        "long",
    ],
)
def test_the_check_finds(damage: str) -> None:
    found = trace.build(of(records.steps(6)))["traceEvents"]
    assert violations(found) == []
    found = copy.deepcopy(found)
    spans = [each for each in found if each["ph"] == "B"]
    if damage == "overlap":
        worker = [each for each in found if each["ph"] in "BE" and each["name"] == "batch 2"]
        worker[-1]["ts"] += 60_000
    elif damage == "unpaired":
        found.remove(spans[3])
    elif damage == "open":
        found.remove([each for each in found if each["ph"] == "E"][-1])
    elif damage == "back":
        spans[5]["ts"] -= 1e6
    elif damage == "unnamed":
        found.remove([each for each in found if each["name"] == "thread_name"][1])
    elif damage == "shared":
        spans[-1]["pid"] = 7
    elif damage == "counter":
        next(each for each in found if each["ph"] == "C")["args"] = {"batches": None}
    elif damage == "loose arrow":
        found.remove(next(each for each in found if each["ph"] == "s"))
    elif damage == "late arrow":
        next(each for each in found if each["ph"] == "f")["ts"] = 0
    elif damage == "long":
        inner = {"ph": "X", "cat": "x", "name": "x", "ts": spans[0]["ts"], "dur": 1, "pid": 1, "tid": 1}
        found += [inner, {**inner, "dur": 2}]
    assert violations(found)


def test_files_are_whole_packed_by_name_and_not_overwritten(tmp_path: Path) -> None:
    record = of(records.steps(3))
    plain, packed = tmp_path / "a.json", tmp_path / "a.json.gz"
    count = trace.write(record, plain)
    assert trace.write(record, packed) == count
    assert json.loads(plain.read_text()) == json.loads(gzip.decompress(packed.read_bytes()))
    assert json.loads(plain.read_text()) == trace.build(record)
    with pytest.raises(FileExistsError):
        trace.write(records.run(), plain)
    assert len(json.loads(plain.read_text())["traceEvents"]) == count
    assert trace.write(records.run(), plain, force=True) == 0
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.json", "a.json.gz"]


def test_a_merge_keeps_the_profilers_events_and_puts_ours_on_its_time_line(tmp_path: Path) -> None:
    record = of(records.steps(3))
    base = record.run.began_unix_ns - 10_000_000_000
    theirs = [
        {
            "ph": "X",
            "cat": "cpu_op",
            "name": "aten::add",
            "pid": 1_000_000_000,
            "tid": 5,
            "ts": 1e7,
            "dur": 9e4,
        },
        {"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": 2e7},
    ]
    theirs[0]["args"] = {"achieved": float("nan"), "all": [float("inf"), 1.5]}  # which is not JSON
    profiled = tmp_path / "profiled.json"
    profiled.write_text(
        json.dumps({"schemaVersion": 1, "traceEvents": theirs, "baseTimeNanoseconds": base, "traceName": "x"})
    )
    out = tmp_path / "both.json.gz"
    merged = trace.merge(record, profiled, out)
    assert merged.overlap
    assert merged.damage is None
    both = json.loads(gzip.decompress(out.read_bytes()))
    theirs[0]["args"] = {"achieved": None, "all": [None, 1.5]}
    assert both["traceEvents"][:2] == theirs
    assert len(both["traceEvents"]) == merged.events
    assert both["baseTimeNanoseconds"] == base
    assert both["traceName"] == "x"
    ours = both["traceEvents"][2:]
    assert violations(ours) == []
    assert {each["pid"] for each in ours}.isdisjoint(each["pid"] for each in theirs)
    assert next(each["ts"] for each in ours if each["name"] == "next 0") == 1e7

    elsewhere = records.run(*record.loaders, began_unix_ns=base - 10**12)
    assert not trace.merge(elsewhere, profiled, out, force=True).overlap
    with pytest.raises(TraceError, match="no trace"):
        (tmp_path / "text").write_text("hello")
        trace.merge(record, tmp_path / "text", tmp_path / "new.json")
    assert not (tmp_path / "new.json").exists()


def row(**changed_ms: int) -> dict[str, list[int]]:
    """A table of one row, its moments in ms."""
    usual = dict.fromkeys(STEP_COLUMNS, 0) | {"slow_row": -1}
    changed = {name: value * MS if name.endswith("_ns") else value for name, value in changed_ms.items()}
    return {name: [value] for name, value in {**usual, **changed}.items()}


def test_a_loader_without_steps_is_a_group_without_spans() -> None:
    assert drawn(records.run(LoaderRecord("a", "stoker", "process", "Images"))) == {}


def test_a_damaged_table_says_so() -> None:
    table = records.steps(3)
    table["got_ns"][1] = None  # type: ignore[call-overload]
    with pytest.raises(RecordError, match="got_ns"):
        trace.build(of(table))


@pytest.mark.parametrize(
    "entries", ['"pid": [1]', '"pid": {}', '"pid": 1, "ts": 1e999'], ids=["list", "dict", "infinite"]
)
@pytest.mark.parametrize(
    "base", ["1" + "0" * 400, "-1", "true", '"x"'], ids=["huge", "negative", "true", "text"]
)
def test_a_merge_with_a_damaged_trace_gives_one_that_can_be_read(
    tmp_path: Path, entries: str, base: str
) -> None:
    theirs, out = tmp_path / "profiler.json", tmp_path / "both.json"
    theirs.write_text(f'{{"baseTimeNanoseconds": {base}, "traceEvents": [{{"ph": "X", {entries}}}]}}')
    merged = trace.merge(of(records.steps(2)), theirs, out)
    assert len(json.loads(out.read_text())["traceEvents"]) == merged.events > 1
