"""Reads the receipts that ``stoker verify`` is asked about: files, folders of them, run records and states written as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stoker._host import bounded_json
from stoker._receipt import receipt_file
from stoker._receipt.data_receipt import DataReceipt
from stoker._record.schema import FORMAT
from stoker.errors import RecordError

HINT = "run the script with STOKER_RECORD=folder, or call loader.receipt().save(path)"


@dataclass(slots=True)
class ReceiptSource:
    """What one argument names: its receipts in the order in which they began, and what could not be read."""

    path: Path
    receipts: list[DataReceipt] = field(default_factory=list)
    damages: list[str] = field(default_factory=list)


def read(paths: Sequence[Path]) -> list[ReceiptSource]:
    """One source per argument. Raises RecordError for what is no receipt, or newer."""
    return [_read(path) for path in paths]


def _read(path: Path) -> ReceiptSource:
    source = ReceiptSource(path)
    try:
        files = _files(path)
        for each in files:
            if not receipt_file.is_receipt_file(each):
                raise RecordError(_refusal(each))
    except OSError as error:
        raise RecordError(f"cannot read {path}: {error.strerror or error}") from error
    if not files:
        raise RecordError(f"there is no receipt in {path}: {HINT}")
    found: dict[int, DataReceipt] = {}
    for each in files:
        read = receipt_file.read(each)
        if read.damage is not None:
            source.damages.append(f"{each.name} is {read.damage}. What stands before that was read")
        for receipt in read.receipts:
            known = found.get(receipt.id)
            if known is None or known.batches < receipt.batches:
                found[receipt.id] = receipt
    source.receipts = sorted(found.values(), key=lambda each: each.facts.began_unix_ns)
    return source


def _files(path: Path) -> list[Path]:
    """The files with receipts: of a folder, or beside a run record."""
    if path.is_dir():
        return sorted(
            each for each in path.rglob(f"*{receipt_file.SUFFIX}") if each.is_file() and each.stat().st_size
        )
    if path.suffix in (".json", ".jsonl"):
        beside = path.with_suffix(receipt_file.SUFFIX)
        return [beside] if beside.exists() else [path]
    return [path]


def _refusal(path: Path) -> str:
    if path.suffix in (".json", ".jsonl"):
        with path.open("rb") as file:
            line = file.readline(1 << 20)
        if _is_record(line):
            return (
                f"{path} is a run record, and {path.with_suffix(receipt_file.SUFFIX).name}, which has its receipts, "
                "is not beside it"
            )
    return f"{path} is no receipt of stoker: {HINT}"


def _is_record(line: bytes) -> bool:
    try:
        data: Any = bounded_json.loads(line)
    except ValueError:
        return FORMAT.encode() in line[:60]
    return isinstance(data, dict) and data.get("format") == FORMAT
