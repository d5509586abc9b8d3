"""Files with values in hundreds or thousands of levels: each reader refuses them with a sentence."""

from __future__ import annotations

import json
import zlib
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stoker._host import bounded_json
from stoker._receipt import receipt_file
from stoker._record import journal
from stoker._record.run_page import page
from stoker._runtime.autoscale import profile_files
from stoker._tools.doctor.reading import logs
from stoker._tools.report.page import sources
from stoker._tools.report.profiler.reading import TraceFile
from stoker._tools.tune.forms import data as tuning
from stoker._tools.verify import sources as receipts
from stoker.errors import RecordError
from tests.unit.records import loader, run

DEPTHS = [200, 900, 100_000]
"""The reader of Python takes the first two; code that copies or prints a value takes the first one alone."""


def nested(depth: int, kind: str) -> str:
    return "[" * depth + "]" * depth if kind == "lists" else '{"a":' * depth + "1" + "}" * depth


BOTH = pytest.mark.parametrize("kind", ["lists", "dicts"])
EACH = pytest.mark.parametrize("depth", DEPTHS)


def record(value: str) -> str:
    text = json.dumps(run(loader(options={"batch_size": "HERE"})).as_dict())
    return text.replace('"HERE"', value)


DOCUMENTS: dict[str, tuple[Callable[[Path], Any], Callable[[str], str]]] = {
    "record": (journal.read, record),
    "anything": (journal.read, lambda value: value),
    "tuning": (
        sources.document,
        lambda value: f'{{"format":"stoker-tuning","version":1,"target":{value},"points":[]}}',
    ),
    "diagnosis": (
        sources.document,
        lambda value: f'{{"format":"stoker-diagnosis","version":1,"subject":{value},"findings":[]}}',
    ),
    "demo": (
        sources.document,
        lambda value: f'{{"format":"stoker-demo","version":1,"acts":{{"a":{value}}}}}',
    ),
    "baseline": (tuning.read, lambda value: f'{{"format":"stoker-tuning","target":{value}}}'),
    "receipt": (lambda path: receipts.read([path]), lambda value: value),
}


@BOTH
@EACH
@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_is_refused_in_a_sentence(name: str, depth: int, kind: str, tmp_path: Path) -> None:
    read, written = DOCUMENTS[name]
    path = tmp_path / "given.json"
    path.write_text(written(nested(depth, kind)))
    with pytest.raises(RecordError) as raised:
        read(path)
    assert "\n" not in str(raised.value)


@BOTH
@EACH
def test_a_line_of_a_journal_is_left_out(depth: int, kind: str, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(f"{json.dumps(run(loader()).as_dict())}\n{record(nested(depth, kind))}\n")
    assert len(journal.read(path).loaders) == 1


@BOTH
@EACH
def test_an_event_of_a_trace_is_left_out(depth: int, kind: str, tmp_path: Path) -> None:
    good = '{"ph":"X","cat":"cpu_op","name":"good","pid":1,"tid":1,"ts":1,"dur":1}'
    bad = f'{{"ph":"X","cat":"cpu_op","name":"bad","args":{{"x":{nested(depth, kind)}}}}}'
    path = tmp_path / "trace.json"
    path.write_text(f'{{"traceEvents":[{good},{bad},{good}]}}')
    events = TraceFile(path).events()
    names = [event["name"] for event in events]
    assert names == ["good", "good"]


@BOTH
@EACH
def test_a_profile_is_left_aside(depth: int, kind: str, tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    path.write_text(nested(min(depth, 5000), kind))  # a larger file is not read
    path.chmod(0o600)
    assert profile_files._read(path) is None


@BOTH
@EACH
def test_a_run_page_is_refused_in_a_sentence(depth: int, kind: str) -> None:
    """The page belongs to another process, which `stoker top` watches."""
    text = nested(depth, kind).encode()
    words = memoryview(array("q", [0] * 64))
    words[page.CHECKSUM] = zlib.crc32(text)
    with pytest.raises(RecordError, match=r"the run page's summary is damaged: .*nested|no object"):
        page._summary(text, words)


@BOTH
@EACH
def test_a_log_is_read_as_text(depth: int, kind: str) -> None:
    assert logs._json_text(f'{{"message":{nested(depth, kind)}}}') is None


@EACH
def test_a_damaged_receipt_says_so(depth: int, tmp_path: Path) -> None:
    path = tmp_path / "run.receipt"
    path.write_bytes(receipt_file._block(receipt_file.HEADER, 1, nested(depth, "dicts").encode()))
    with pytest.raises(RecordError, match="nested"):
        receipt_file.read(path)


def test_what_is_not_nested_is_read_as_it_is() -> None:
    value = {"a": [1, {"b": None}, "[[["], "c": 1.5}
    assert bounded_json.loads(json.dumps(value)) == value
    assert bounded_json.loads(nested(bounded_json.MOST_DEPTH, "lists").encode())
    with pytest.raises(ValueError, match="more than 100 levels"):
        bounded_json.loads(nested(bounded_json.MOST_DEPTH + 1, "lists"))
