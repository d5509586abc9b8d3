"""Traces are read piece by piece, as far as they go; what is wrong with one is said."""

from __future__ import annotations

import gzip
import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stoker._record import journal
from stoker._tools.report.profiler import ranks, reading, screen
from stoker._tools.report.profiler.reading import TraceFile, files, is_trace
from stoker._tools.report.profiler.verdict import judge
from stoker._tools.report.trace import trace
from stoker.errors import TraceError
from tests.unit import records
from tests.unit.profiled import Profiled


def small(count: int = 5) -> Profiled:
    run = Profiled()
    for _ in range(count):
        with run.step():
            run.next(8)
            run.launch(2)
    return run


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_PIECE", 1024)
    monkeypatch.setattr(reading, "_HEAD", 512)


@pytest.mark.parametrize("name", ["a.json", "a.json.gz", "packed but not by name"])
def test_whole_files(tmp_path: Path, name: str) -> None:
    run = small()
    path = run.write(tmp_path / name)
    if "packed" in name:
        path.write_bytes(gzip.compress(path.read_bytes()[:3000]) + gzip.compress(path.read_bytes()[3000:]))
    file = TraceFile(path)
    assert list(file.events()) == run.events
    assert (file.damage, file.skipped) == (None, 0)
    assert file.entries["traceName"] == "x"
    assert file.base_unix_ns == run.entries["baseTimeNanoseconds"]
    assert is_trace(path)


def test_cut_off_anywhere(tmp_path: Path) -> None:
    run = small(3)
    text = run.text()
    begin = text.index("[\n")
    path = tmp_path / "cut.json"
    for end in range(begin + 2, len(text) - 2, 37):
        path.write_text(text[:end])
        file = TraceFile(path)
        found = list(file.events())
        assert found == run.events[: len(found)]
        assert len(found) >= text[begin:end].count("\n") - 1
        assert file.damage is not None, end
        assert "cut off" in file.damage


def test_packing_that_is_cut_off_or_damaged(tmp_path: Path) -> None:
    run = small(200)
    packed = gzip.compress(run.text().encode())
    path = tmp_path / "cut.json.gz"
    path.write_bytes(packed[: len(packed) // 2])
    file = TraceFile(path)
    found = list(file.events())
    assert found == run.events[: len(found)]
    assert len(found) > 100
    assert "packing was cut off" in str(file.damage)
    assert ranks.read([path]).notes == [f"cut.json.gz: {file.damage}."]
    broken = bytearray(packed)
    broken[-8] ^= 0xFF  # the checksum
    path.write_bytes(broken)
    file = TraceFile(path)
    assert len(list(file.events())) > 100
    assert "damaged" in str(file.damage)


def test_damage_in_the_middle_costs_one_event(tmp_path: Path) -> None:
    run = small()
    lines = run.text().splitlines()
    lines[4] = lines[4].replace('"dur"', '"dur')
    path = tmp_path / "damaged.json"
    path.write_text("\n".join(lines))
    file = TraceFile(path)
    assert list(file.events()) == [*run.events[:3], *run.events[4:]]
    assert (file.skipped, file.damage) == (1, None)
    assert "1 damaged event" in ranks.read([path]).notes[0]


def test_deep_nesting_costs_one_event(tmp_path: Path) -> None:
    """It once ended in a RecursionError, here and in --merge."""
    whole = [{"ph": "X", "name": str(number), "ts": number, "dur": 1} for number in range(3)]
    text = json.dumps({"traceEvents": whole})
    path = tmp_path / "trace.json"
    path.write_text(text.replace('"name": "1"', '"name": ' + "[" * 100_000 + "]" * 100_000))
    found = TraceFile(path)
    assert [each["name"] for each in found.events()] == ["0", "2"]
    assert found.skipped == 1
    path.write_text(text.replace("}]}", '}], "x": ' + "[" * 100_000))
    found = TraceFile(path)
    assert len(list(found.events())) == 3
    assert found.damage is not None


def test_odd_but_good(tmp_path: Path) -> None:
    run = small(2)
    path = tmp_path / "list.json"
    path.write_text(json.dumps(run.events)[:-1])  # a bare list, which nobody has to close
    assert list(TraceFile(path).events()) == run.events
    assert is_trace(path)
    run.events[0]["name"] = "tab\there"
    run.events[1]["dur"] = float("nan")
    path.write_bytes(run.text().replace("\\t", "\t").encode() + b"\n")
    assert next(TraceFile(path).events())["name"] == "tab\there"
    ranks.read([path])
    for broken in (
        {"ph": "X"},
        {"ph": "X", "ts": "a", "dur": 1, "name": "x"},
        {"ph": "i", "name": "[memory]", "ts": 1},
        {},
    ):
        run.events.append(broken)
    assert ranks.read([run.write(tmp_path / "a.json")]).ranks[0].steps == 2


@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_damage_gives_an_answer_or_one_line(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    chance = random.Random(seed)
    run = small(chance.randint(0, 3))
    odd: list[Any] = [None, "x", -1, 1e300, float("nan"), [], {}, -1e18, "1.5", True]
    for event in run.events:
        if chance.random() < 0.2:
            event[chance.choice(list(event))] = chance.choice(odd)
    data = bytearray(run.text().encode())
    for _ in range(chance.randint(0, 4)):
        data[chance.randrange(len(data))] = chance.randrange(256)
    if chance.random() < 0.3:
        del data[chance.randrange(len(data)) :]
    if chance.random() < 0.3:
        data = bytearray(gzip.compress(bytes(data)))
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path = tmp_path_factory.getbasetemp() / "damaged.json"
    path.write_bytes(data)
    is_trace(path)
    try:
        shown = screen.render(judge(ranks.read([path])))
    except TraceError as error:
        shown = str(error)
        assert "\n" not in shown
    assert shown


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"", "no trace"), (b"hello", "no trace"), (b"{}", "no list of events"), (b'{"a": 1}', "no list of events"),
     (b"\x1f\x8bxx", "no trace"), (b'{"a" 1}', "not JSON"), (b'{"a": 1', "no list of events"), (b"\xff\xfe\x00", "no trace")],
)  # fmt: skip
def test_what_is_no_trace_says_so(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "other.json"
    path.write_bytes(content)
    assert not is_trace(path)
    with pytest.raises(TraceError, match=said):
        list(TraceFile(path).events())
    with pytest.raises(TraceError, match=said):
        ranks.read([path])


def test_folders(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no trace of torch"):
        files([tmp_path])
    assert not is_trace(tmp_path)
    path = small().write(tmp_path / "a.pt.trace.json.gz")
    assert is_trace(tmp_path)
    assert files([tmp_path, path]) == [path, path]
    journal.write(records.run(records.loader()), tmp_path / "1-0.jsonl")
    assert not is_trace(tmp_path)
    assert not is_trace(tmp_path / "1-0.jsonl")
    with pytest.raises(TraceError, match="there is no file"):
        files([tmp_path / "none"])
    assert not is_trace(tmp_path / "none")


def test_our_own_traces_are_told_apart(tmp_path: Path) -> None:
    record = records.run(records.loader(steps=records.steps(5)))
    trace.write(record, tmp_path / "ours.json")
    assert is_trace(tmp_path / "ours.json")
    with pytest.raises(TraceError, match="stoker wrote"):
        ranks.read([tmp_path / "ours.json"])
    theirs = small().write(tmp_path / "theirs.json")
    trace.merge(record, theirs, tmp_path / "both.json")
    assert ranks.read([tmp_path / "both.json"]).parts == ranks.read([theirs]).parts


def test_the_work_grows_with_the_events_and_no_faster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_PIECE", 1 << 20)
    calls = {}
    for count in (500, 2000):
        run = small(count)
        for _ in range(3):
            run.next(0.1, thread=4000 + len(run.events) % 50)
        path = run.write(tmp_path / f"{count}.json")
        counted = 0

        def count_call(*_: Any) -> None:
            nonlocal counted
            counted += 1

        sys.setprofile(count_call)
        try:
            ranks.read([path])
        finally:
            sys.setprofile(None)
        calls[count] = counted
    assert calls[2000] < 4.1 * calls[500]
