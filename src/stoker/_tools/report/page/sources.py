"""Reads files into material, each by its content. A file that cannot be read is a RecordError of one line, with advice."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from stoker._host import bounded_file, bounded_json
from stoker._record import journal
from stoker._record.schema import FORMAT
from stoker._tools.report.page import runs
from stoker._tools.report.page.material import Material, ReportedRun
from stoker._tools.report.verdict.verdict import judge
from stoker.errors import RecordError

TUNING, DIAGNOSIS, DEMO = "stoker-tuning", "stoker-diagnosis", "stoker-demo"
_READ = {
    TUNING: ("a tuning", 1, ("target", "points", "recommended")),
    DIAGNOSIS: ("a diagnosis", 1, ("subject", "findings")),
    DEMO: ("a demo's record", 1, ("acts",)),
}
"""By format: what it is, the version that is read, and what it has to have."""
_OTHERS = {
    "stoker-verdict": "a verdict: give the record that it is about",
    "stoker-trace-verdict": "a verdict on traces: give the traces",
    "stoker-what-if": "the answer to a --what-if: give the record that was asked about",
    "stoker-report": "a report: give what it was made of",
    "stoker-bisection": "a bisection: `stoker doctor --json` without --bisect writes what a report can show",
    "stoker-bench": "a comparison by `stoker bench`: give the record of a run",
    "stoker-profile": "a profile of the tuner: `stoker tune --json` writes what a report can show",
}
_FORMAT = re.compile(r'^\s*\{\s*"format"\s*:\s*"([^"]{1,40})"')
_HEAD_BYTES = 1024


def format_of(path: Path) -> str:
    """The format that a file names, FORMAT for a folder. Raises RecordError for what is not there or cannot be read."""
    try:
        if path.is_dir():
            return FORMAT
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except FileNotFoundError:
        raise RecordError(f"cannot read {path}: No such file or directory. {journal.HINT}") from None
    except OSError as error:
        raise RecordError(f"cannot read {path}: {error.strerror or error}") from error
    told = _FORMAT.match(head.decode("utf-8", "replace").lstrip("\ufeff"))
    return told[1] if told else ""


def read(
    paths: Sequence[Path], *, price_per_hour: float | None = None, watts: float | None = None
) -> Material:
    """Run records, tunings and diagnoses. Records of one run become one. Raises RecordError."""
    records: list[runs.RecordSource] = []
    documents: dict[str, list[dict[str, Any]]] = {TUNING: [], DIAGNOSIS: []}
    for path in paths:
        kind = format_of(path)
        if kind in documents:
            documents[kind].append(document(path))
        elif kind == DEMO:
            raise RecordError(f"{path} is a demo's record, which is a report of its own: give it alone")
        elif kind in _OTHERS:
            raise RecordError(f"{path} is {_OTHERS[kind]}")
        else:
            records.append(runs.RecordSource(path, journal.read(path), _notes(path)))
    found = runs.grouped(records)
    told = []
    for label, group in zip(runs.labels(found), found, strict=True):
        notes = tuple(note for each in group for note in each.notes)
        record = runs.whole(group)
        verdict = judge(record, price_per_hour=price_per_hour, watts=watts)
        told.append(ReportedRun(label, record, verdict, (*_together(group), *notes)))
    return Material(tuple(told), tuple(documents[TUNING]), tuple(documents[DIAGNOSIS]))


def document(path: Path) -> dict[str, Any]:
    """What ``stoker tune``, ``doctor`` or ``demo`` wrote as JSON: of a version that is known, with what it has to have."""
    kind, version, needed = _READ[format_of(path)]
    try:
        data = bounded_json.loads(bounded_file.read(path))
    except UnicodeDecodeError as error:
        raise RecordError(f"{path} is no JSON: it is not text") from error
    except OSError as error:
        raise RecordError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise RecordError(
            f"{path} is {kind} that was cut off or damaged, so make it again: {error}"
        ) from error
    told = data.get("version")
    if type(told) is not int:
        raise RecordError(f"{path} is {kind} that does not say its version")
    if told > version:
        raise RecordError(
            f"{path} is {kind} of version {told}, and this stoker reads up to {version}: upgrade stoker to read it"
        )
    missing = [name for name in needed if name not in data]
    if missing or not all(_is_sound(name, data[name]) for name in needed):
        what = f"it has no {missing[0]!r}" if missing else "it has something else where its entries should be"
        raise RecordError(f"{path} is {kind} that is damaged, so make it again: {what}")
    found: dict[str, Any] = data
    return found


_SOUND: dict[str, Callable[[Any], bool]] = {
    "findings": lambda value: _all_dicts(value) and all(isinstance(each.get("code"), str) for each in value),
    "points": lambda value: _all_dicts(value),
    "acts": lambda value: isinstance(value, dict) and _all_dicts(list(value.values())),
}


def _is_sound(name: str, value: Any) -> bool:
    return _SOUND[name](value) if name in _SOUND else True


def _all_dicts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, dict) for each in value)


def _together(group: Sequence[runs.RecordSource]) -> tuple[str, ...]:
    if len(group) < 2:
        return ()
    names = ", ".join(each.path.name for each in group[:4]) + (", …" if len(group) > 4 else "")
    return (f"{len(group)} files are of this one run: {names}.",)


def _notes(path: Path) -> tuple[str, ...]:
    """What is to be said of a record's files: which were cut off."""
    files = sorted(path.glob("*.json*")) if path.is_dir() else [path]
    cut = [each.name for each in files if each.is_file() and _is_cut(each)]
    return tuple(
        f"{name} was cut off, by the end of the run or a full disk: this is what it had up to then."
        for name in cut
    )


def _is_cut(path: Path) -> bool:
    """Whether a line of this journal is not whole. Those that are were read."""
    text = bounded_file.read(path)
    lines = text.splitlines()
    if any(line.startswith(b'{"format":') and not line.endswith(b"}") for line in lines):
        return True
    if text.endswith(b"\n") or len(lines) < 2:
        return False
    try:
        bounded_json.loads(lines[-1])
    except ValueError:
        return lines[-1].startswith(b"{")
    return False
