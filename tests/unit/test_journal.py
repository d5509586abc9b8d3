"""Records in files: lines that are appended, a last one that was cut off, files that are no records."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from stoker._record import journal
from stoker._record.journal import Journal
from stoker._record.schema import STEP_COLUMNS, VERSION, RunRecord, dumps
from stoker._tools.report.trace import trace
from stoker.errors import RecordError
from tests.unit.records import loader, run


def record(*seqs: int, name: str = "loader", pid: int = 1) -> RunRecord:
    """A record whose steps have these numbers."""
    made = run(loader(name=name))
    made.run.pid = pid
    made.loaders[0].steps = {column: [0] * len(seqs) for column in STEP_COLUMNS} | {"seq": list(seqs)}
    return made


def test_lines_are_put_together(tmp_path: Path) -> None:
    file = Journal(tmp_path / "run.jsonl")
    for seqs in ((0, 1), (2,), (3, 4)):
        file.append(record(*seqs))
    found = journal.read(file.path)
    assert found.loaders[0].steps["seq"] == [0, 1, 2, 3, 4]
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600


@pytest.mark.parametrize("place", [0, 1])
def test_a_line_without_one_of_the_columns_has_zeros_in_it(place: int, tmp_path: Path) -> None:
    """An earlier version wrote it, or it is damaged. All columns of a record have one length."""
    file = Journal(tmp_path / "run.jsonl")
    lines = [record(0, 1), record(2)]
    lines[place].loaders[0].steps["rows"] = [8] * (2 - place)
    del lines[1 - place].loaders[0].steps["rows"]
    for each in lines:
        file.append(each)
    found = journal.read(file.path).loaders[0].steps
    assert found["seq"] == [0, 1, 2]
    assert found["rows"] == [[8, 8, 0], [0, 0, 8]][place]


@pytest.mark.parametrize("left", [1, 100, -2])
def test_the_line_that_a_death_cut_off_is_left_out(tmp_path: Path, left: int) -> None:
    path = tmp_path / "run.jsonl"
    file = Journal(path)
    file.append(record(0, 1))
    whole = path.stat().st_size
    file.append(record(2))
    path.write_bytes(path.read_bytes()[: whole + left] if left > 0 else path.read_bytes()[:left])
    assert journal.read(path).loaders[0].steps["seq"] == [0, 1]


def test_a_file_that_has_grown_too_large_is_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "_MOST_BYTES", 20_000)
    file = Journal(tmp_path / "run.jsonl")
    sizes = []
    for number in range(200):
        if file.full:
            file.rewrite(record(*range(number + 1)))
        else:
            file.append(record(number))
        sizes.append(file.path.stat().st_size)
    assert max(sizes) < 60_000
    assert journal.read(file.path).loaders[0].steps["seq"][-1] == 199
    assert [each.name for each in tmp_path.iterdir()] == ["run.jsonl"]


def test_many_steps_are_cut_in_the_middle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "KEPT_ROWS", 10)
    file = Journal(tmp_path / "run.jsonl")
    for number in range(0, 40, 4):
        file.append(record(*range(number, number + 4)))
    found = journal.read(file.path).loaders[0]
    assert found.steps["seq"] == [0, 1, 2, 3, 4, 35, 36, 37, 38, 39]
    assert found.steps_dropped == 30


def test_a_folder_is_one_run(tmp_path: Path) -> None:
    journal.write(record(0, name="train"), tmp_path / "1-0.jsonl")
    journal.write(record(0, name="valid", pid=2), tmp_path / "2-0.jsonl")
    (tmp_path / "notes.txt").write_text("something else")
    found = journal.read(tmp_path)
    assert [each.name for each in found.loaders] == ["train", "valid"]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "no run record"),
        (b"\x89PNG\r\n\x1a\n\xff\xfe", "not text"),
        (b"{}", "no format"),
        (b"[1, 2]", "no format"),
        (b"hello\nworld", "no run record"),
        (b'{"format": "stoker-run"}', "version"),
        (b'{"format": "stoker-run", "version": "1"}', "version"),
        (json.dumps({"format": "stoker-run", "version": VERSION + 1}).encode(), "upgrade stoker"),
        (json.dumps({"format": "stoker-run", "version": VERSION, "loaders": 3}).encode(), "damaged"),
        (json.dumps({"format": "stoker-run", "version": VERSION}).encode(), "damaged"),
    ],
)
def test_what_is_no_record_says_so(tmp_path: Path, content: bytes, told: str) -> None:
    path = tmp_path / "run.json"
    path.write_bytes(content)
    with pytest.raises(RecordError, match=told):
        journal.read(path)


def test_a_path_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="cannot read"):
        journal.read(tmp_path / "nothing.json")
    with pytest.raises(RecordError, match="there is no run record"):
        journal.read(tmp_path)


def test_entries_of_a_later_version_of_the_same_format_are_left_out(tmp_path: Path) -> None:
    data = record(0, 1).as_dict()
    data["run"]["weather"] = "fine"
    data["loaders"][0]["steps"]["mood"] = [1, 2]
    data["loaders"][0]["totals"]["smiles"] = 3
    path = tmp_path / "run.json"
    path.write_text(json.dumps(data, indent=1))
    assert journal.read(path).as_dict() == record(0, 1).as_dict()


def test_a_pipe_is_written_to_and_the_file_behind_a_link_replaced(tmp_path: Path) -> None:
    """Whoever writes to /dev/null as root is not to put a file in its place."""
    pipe, link, target = tmp_path / "pipe", tmp_path / "link.json", tmp_path / "target.json"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    link.symlink_to(target)
    try:
        journal.write(record(1), pipe)
        assert json.loads(os.read(reader, 1 << 16))["format"] == "stoker-run"
        assert trace.write(record(1), pipe, force=True) > 0
        assert "traceEvents" in json.loads(os.read(reader, 1 << 16))
    finally:
        os.close(reader)
    assert pipe.is_fifo()
    journal.write(record(2), link)
    assert link.is_symlink()
    assert journal.read(target).loaders[0].steps["seq"] == [2]


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999"])
def test_a_number_that_cannot_be_written_again_is_refused(number: str, tmp_path: Path) -> None:
    """`stoker profile` reads the records of a script's processes and writes them as one."""
    path = tmp_path / "run.json"
    text = dumps(run(loader())).replace(
        '"prefetch_factor":{"value":2', f'"prefetch_factor":{{"value":{number}'
    )
    assert number in text
    path.write_text(text)
    with pytest.raises(RecordError, match=r"no number that a record can hold|no line of it is whole"):
        journal.read(path)
