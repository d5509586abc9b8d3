"""Files without an end, and pipes in a folder: a command that reads them ends with a sentence, and does not wait."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from stoker._host import bounded_file
from stoker._receipt import receipt_file
from stoker._record import journal
from stoker._tools.report.page import sources
from stoker._tools.report.profiler import reading
from stoker._tools.tune.forms import data
from stoker._tools.verify import sources as verify_sources
from stoker.errors import RecordError
from tests.unit.profiled import Profiled
from tests.unit.records import loader, run

READERS: dict[str, Callable[[Path], object]] = {
    "record": journal.read,
    "tuning": data.read,
    "document": sources.document,
    "receipt": receipt_file.read,
}
BEGINS = {"document": b'{"format":"stoker-tuning",', "receipt": b"STKR"}


@pytest.mark.parametrize("kind", READERS)
def test_a_file_that_is_larger_than_any_of_its_kind_is_refused(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_file.read, "__defaults__", (1 << 20,))
    monkeypatch.setattr(receipt_file, "_MOST_BYTES", 1 << 20)
    path = tmp_path / "endless.json"
    path.write_bytes(BEGINS.get(kind, b"") + b"\0" * ((1 << 20) + 1))
    with pytest.raises(RecordError, match=r"cannot read .*endless\.json: it has more than 1 MB"):
        READERS[kind](path)


def test_a_line_without_an_end_in_a_folder_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder's files are looked into before they are read: a sparse file of 60 GB took all memory there."""
    monkeypatch.setattr(bounded_file.read, "__defaults__", (1 << 20,))
    monkeypatch.setattr(bounded_file, "MOST_BYTES", 1 << 20)
    with (tmp_path / "endless.jsonl").open("wb") as file:
        file.truncate(64 << 20)
    tracemalloc.start()
    try:
        with pytest.raises(RecordError, match=r"cannot read .*: it has more than 1 MB"):
            journal.read(tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_as_much_as_is_allowed_is_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 1000)
    assert bounded_file.read(path, 1000) == path.read_bytes()
    with pytest.raises(OSError, match="more than 0 MB"):
        bounded_file.read(path, 999)


def test_a_small_file_takes_little_memory(tmp_path: Path) -> None:
    """Memory for the largest file was once taken for every file."""
    path = tmp_path / "file"
    path.write_bytes(b"x" * 1000)
    tracemalloc.start()
    try:
        assert len(bounded_file.read(path, 1 << 30)) == 1000
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_pipes_in_a_folder_are_not_waited_for(tmp_path: Path) -> None:
    """Another user may put one into a folder that is shared: it has no end until they write to it."""
    for name in ("a.json", "b.jsonl", "c.json.gz", "d.receipt"):
        os.mkfifo(tmp_path / name)
    with pytest.raises(RecordError, match="there is no run record"):
        journal.read(tmp_path)
    assert not reading.is_trace(tmp_path)
    with pytest.raises(RecordError, match="there is no receipt"):
        verify_sources.read([tmp_path])
    journal.write(run(loader()), tmp_path / "run.json")
    assert len(journal.read(tmp_path).loaders) == 1
    other = tmp_path / "traces"
    other.mkdir()
    os.mkfifo(other / "a.json")
    whole = Profiled()
    whole.next(5)
    whole.write(other / "rank0.json")
    assert reading.files([other]) == [other / "rank0.json"]
