"""Files of receipts that are cut off, damaged or hostile: what stands before is read, and the rest is said in words."""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stoker._receipt import receipt_checks, receipt_file, sketch
from stoker._receipt.data_receipt import DataReceipt, ReceiptBefore, ReceiptFacts
from stoker._tools.verify.verification import verify
from stoker.errors import RecordError

BLOCK = struct.Struct("<4sHHIIQ")
SKETCH = sketch.empty().tobytes()


def receipt(**changed: Any) -> DataReceipt:
    """Of six batches."""
    given: dict[str, Any] = {
        "id": 7, "facts": ReceiptFacts(length=24, began_unix_ns=5), "epoch": 0, "seed": 3, "sampler_epoch": None, "first": 0,
        "batches": 6, "samples": 24, "finished": True, "entries": np.arange(6, dtype=np.uint64), "bad": [(1, "3")], "bad_count": 1,
    }  # fmt: skip
    return DataReceipt(**{**given, **changed})


def blocks(each: DataReceipt) -> list[bytes]:
    entries = receipt_file.entries_block(each, each.entries, each.first, kind=receipt_file.WHOLE)
    return [receipt_file.header_block(each), entries, receipt_file.totals_block(each)]


def block(kind: int, payload: bytes, number: int = 7) -> bytes:
    return BLOCK.pack(b"STKR", 1, kind, len(payload), zlib.crc32(payload), number) + payload


def totals(**changed: Any) -> bytes:
    """A block of sums, some of which are other than they were."""
    whole = json.loads(blocks(receipt())[2][BLOCK.size + len(SKETCH) :])
    return block(receipt_file.TOTALS, SKETCH + json.dumps({**whole, **changed}).encode())


def header(**changed: Any) -> bytes:
    whole = json.loads(blocks(receipt())[0][BLOCK.size :])
    whole["facts"] |= changed.pop("facts", {})
    return block(receipt_file.HEADER, json.dumps({**whole, **changed}).encode())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "other.receipt").write_bytes(b"".join(blocks(receipt(id=8))))
    return tmp_path / "run.receipt"


def judged(path: Path, *data: bytes) -> list[str]:
    """The codes of what ``stoker verify`` says of this file beside a whole one."""
    path.write_bytes(b"".join(data))
    found = verify([path, path.with_name("other.receipt")])
    json.dumps(found.as_dict())
    return [each.code for each in found.answers]


def test_a_file_that_was_cut_off_before_its_last_sums_is_compared(path: Path) -> None:
    """The sums of batches are written before the totals that count them: a killed run leaves them alone."""
    begin, entries, last = blocks(receipt())
    assert "damaged" in judged(path, begin, entries, last[:-5])
    [read] = receipt_file.read(path).receipts
    assert (read.batches, len(read.entries)) == (0, 0)


def test_sums_come_in_pieces_and_are_added_up(path: Path) -> None:
    whole = receipt(batches=5)
    pieces = [receipt_file.entries_block(whole, whole.entries[at : at + 3], at) for at in (0, 3)]
    path.write_bytes(b"".join((receipt_file.header_block(whole), *pieces, receipt_file.totals_block(whole))))
    [read] = receipt_file.read(path).receipts
    assert read.entries.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"bad": None}, "bad is None"),
        ({"bad": [[1]]}, "bad is a list"),
        ({"batches": -1}, "batches is -1"),
        ({"samples": 10**400}, "samples is out of range"),
        ({"samples": 1.5}, "samples is 1.5"),
        ({"digest": 1 << 64}, "digest is out of range"),
        ({"finished": "yes"}, "finished is 'yes'"),
        ({"missing": 3}, "missing is 3"),
    ],
)
def test_damaged_sums_leave_the_receipt_as_it_was(path: Path, changed: Any, words: str) -> None:
    path.write_bytes(b"".join([*blocks(receipt()), totals(**changed)]))
    read = receipt_file.read(path)
    assert read.damage == f"damaged: {words}"
    [kept] = read.receipts
    assert (kept.batches, kept.samples, kept.bad, kept.finished) == (6, 24, [(1, "3")], True)


@pytest.mark.parametrize(
    "changed",
    [
        {"epoch": "0"},
        {"first": 1 << 63},
        {"previous": None},
        {"facts": []},
        {"facts": {"world_size": 1 << 40}},
        {"facts": {"world_size": 0}},
        {"facts": {"samplers": 3}},
        {"before": {"batches": 1}},
        {"before": 7},
    ],
)
def test_a_damaged_beginning_is_refused(path: Path, changed: Any) -> None:
    path.write_bytes(header(**changed) if changed != {"facts": []} else block(1, b'{"facts":[]}'))
    with pytest.raises(RecordError, match="damaged"):
        receipt_file.read(path)


def test_nesting_and_blocks_without_a_beginning_are_damage(path: Path) -> None:
    deep = b"[" * 100_000
    for bad in (
        block(receipt_file.TOTALS, SKETCH + deep),
        block(receipt_file.ADDED, b"", 99),
        block(4, b"x"),
    ):
        path.write_bytes(b"".join([*blocks(receipt()), bad]))
        read = receipt_file.read(path)
        assert read.damage is not None
        assert [each.batches for each in read.receipts] == [6]


@pytest.mark.parametrize(("first", "batches"), [(1 << 60, 6), (0, 1 << 61), ((1 << 61) - 3, 1 << 61)])
def test_a_small_file_takes_little_memory(path: Path, first: int, batches: int) -> None:
    """It once asked for a sum for every batch that it claims to have."""
    told = receipt(first=first, batches=batches, resumed=True, before=ReceiptBefore(first, 0, 0, 0))
    assert judged(path, *blocks(told))
    [read] = receipt_file.read(path).receipts
    assert read.end // read.grain <= receipt_checks.MOST_PLACES
    assert len(read.entries) <= 6


def test_a_dataset_that_is_too_large_to_tell_apart_is_counted(path: Path) -> None:
    """The samples of a dataset of 2^50 were once looked at one by one."""
    facts = ReceiptFacts(length=1 << 50, began_unix_ns=5)
    assert "too-many" in judged(path, *blocks(replace(receipt(), facts=facts, samples=1 << 50)))


def test_a_name_is_no_template(path: Path) -> None:
    facts = ReceiptFacts(dataset="a.{0!r}{", length=3)
    told = blocks(replace(receipt(), facts=facts))
    path.write_bytes(b"".join(told))
    found = verify([path, path.with_name("other.receipt")])
    assert any("{0!r}{ of 3 samples" in each.text for each in found.answers if each.code == "another-dataset")
