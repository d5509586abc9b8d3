"""Writes run records to files while the run goes on, and reads them back, even after the run was killed.

A file is a line of JSON, or several: each is a whole record but for its table of steps, which holds what came since the line
before. A line that was cut off, by the run's death or by a full disk, is left out. A file that has grown too large is written
anew, with a bounded table, under another name and then put in its place: at every moment there is one that can be read. Several
loaders that were given the same file, or runs one after another, are told apart by their ids.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from stoker._host import bounded_file, bounded_json
from stoker._host.private_files import FileIdentity, followed, identity, open_append, open_stream, replacing
from stoker._record.merge_loaders import joined_steps
from stoker._record.schema import CALL_MOMENTS, FORMAT, MOMENTS, LoaderRecord, Run, RunRecord, dumps
from stoker.errors import RecordError

ENVIRONMENT = "STOKER_RECORD"
"""Names the folder to which every loader of a process appends its record."""

_MOST_BYTES = 16 << 20
"""A file that has grown beyond this is written anew."""

KEPT_ROWS = 20_000
"""Rows of steps that a record read from a file has at most, per loader: the first and the last of them."""

HINT = "`stoker profile train.py` writes a run record"
"""For those who have none."""

_SAME_CLOCK_NS = 1_000_000_000
"""Calendars of one machine are set anew by less, as a rule."""


def sink_from_environment() -> Path | None:
    """Where the environment asks this process's loaders to append their records."""
    folder = os.environ.get(ENVIRONMENT)
    return Path(folder) if folder else None


class Journal:
    """Appends one loader's record to a file of its own. Owner: its recorder, which calls on the thread that iterates."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()  # the script may go to another folder
        self._size = 0
        self._cut = False
        """Whether the last line is not whole."""
        self._file: FileIdentity | None = None
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def append(self, record: RunRecord) -> None:
        """One more line. ``record.loaders[0].steps`` holds what is new since the last one."""
        line = memoryview(f"{self._cut * chr(10)}{dumps(record)}\n".encode())
        fd = open_append(self.path, known=self._file)
        left = line
        try:
            self._file = identity(fd)
            while left:
                written = os.write(fd, left)
                self._size += written
                self._cut, left = True, left[written:]
        finally:
            os.close(fd)
        self._cut = False

    @property
    def full(self) -> bool:
        """Whether the next line should be a ``rewrite``."""
        return self._size > _MOST_BYTES

    def rewrite(self, record: RunRecord) -> None:
        """Write the journal anew with this record only, and all that is kept of its steps."""
        write(record, self.path)
        self._size = self.path.stat().st_size
        self._file = None


def write(record: RunRecord, path: Path) -> None:
    """Write a file with this record alone, private to the user. A reader sees the whole old file or the whole new one.

    What is no file, a pipe or /dev/null, is written to and not replaced; behind a link of this user it is the file that is
    replaced. Raises PermissionError for a link that another user made.
    """
    path = followed(path)
    text = f"{dumps(record)}\n"
    if path.exists() and not path.is_file():
        with open(open_stream(path), "w") as file:
            file.write(text)
        return
    with replacing(path) as fd, open(fd, "w", closefd=False) as file:
        file.write(text)


def read(path: Path) -> RunRecord:
    """The record in a file, or of all files in a folder (processes and loaders of one run). Raises RecordError."""
    try:
        files = [path]
        if path.is_dir():  # a process may have been killed, or found no room, before its first line
            whole = (
                each
                for each in path.iterdir()
                if each.suffix in (".json", ".jsonl") and each.is_file() and _has_line(each)
            )
            files = sorted(whole)
        found = [_read_one(each) for each in files]
    except OSError as error:
        hint = f". {HINT}" if isinstance(error, FileNotFoundError) else ""
        raise RecordError(f"cannot read {path}: {error.strerror or error}{hint}") from error
    if not found:
        raise RecordError(f"there is no run record in {path}. {HINT}")
    return merged(found)


def merged(records: Iterable[RunRecord]) -> RunRecord:
    """One run of several files: the loaders of all, in the order in which they began. Moments count from the first of these."""
    first, *others = sorted(records, key=lambda each: (each.run.began_unix_ns, each.run.pid))
    for other in others:
        late_ns = _between(first.run, other.run)
        for loader in other.loaders:
            _shift(loader, late_ns)
        first.loaders += other.loaders
        first.run.ended = first.run.ended and other.run.ended
    return first


def _between(first: Run, other: Run) -> int:
    """By the monotonic clock, unless the two are of different machines, whose clocks have nothing to do with each other."""
    by_calendar_ns = other.began_unix_ns - first.began_unix_ns
    by_clock_ns = other.began_ns - first.began_ns
    return by_clock_ns if abs(by_clock_ns - by_calendar_ns) < _SAME_CLOCK_NS else by_calendar_ns


def _shift(loader: LoaderRecord, ns: int) -> None:
    """Let its moments count from ``ns`` earlier. A ticket's moment that was not measured stays 0."""
    for name in MOMENTS:
        if name in loader.steps:
            always = name in CALL_MOMENTS
            loader.steps[name] = [each_ns + ns if each_ns or always else 0 for each_ns in loader.steps[name]]
    if "at_ns" in loader.memory:
        loader.memory["at_ns"] = [at_ns + ns for at_ns in loader.memory["at_ns"]]
    for event in loader.events:
        event.at_ns += ns
    for period in loader.periods:
        period.began_ns += ns
        period.ended_ns += ns


def _read_one(path: Path) -> RunRecord:
    try:
        lines = bounded_file.read(path).decode().splitlines()
    except UnicodeDecodeError as error:
        raise RecordError(f"{path} is no run record: it is not text") from error
    found: list[Any] = []
    for line in lines:
        with suppress(ValueError):
            found.append(bounded_json.loads(line, _decode))
    found = [each for each in found if _is_record(each)]
    if not found:  # no journal: perhaps one JSON over several lines
        try:
            found = [bounded_json.loads("\n".join(lines), _decode)]
        except ValueError as error:
            raise RecordError(_refusal(path, lines, error)) from error
        if not _is_record(found[0]):
            raise RecordError(f"{path} is no run record of stoker: it has no format {FORMAT!r}. {HINT}")
    runs: dict[str, list[RunRecord]] = {}
    try:
        for each in map(RunRecord.from_dict, found):
            runs.setdefault(each.run.id, []).append(each)
    except RecordError as error:
        raise RecordError(f"{path}: {error}") from error
    return merged(_joined(each) for each in runs.values())


def _finite(text: str) -> float:
    """A number of a record. None is written that is infinite or no number: it could not be written again."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text:.40} is no number that a record can hold")
    return number


_decode = json.JSONDecoder(parse_float=_finite, parse_constant=_finite).decode


def _refusal(path: Path, lines: list[str], error: Exception) -> str:
    if not any(line.strip() for line in lines):
        return f"{path} is no run record, it is empty: one is written with the first batch"
    if lines[0].lstrip().startswith('{"format":') and FORMAT in lines[0][:60]:
        return f"{path} is a run record that was cut off, and no line of it is whole: make the run again"
    return f"{path} is no run record: {error}. {HINT}"


def _has_line(path: Path) -> bool:
    """Whether there is anything to read, or to refuse: a line without an end may be as long as the disk is large."""
    if path.suffix == ".json":
        return True
    with path.open("rb") as file:
        line = file.readline(bounded_file.MOST_BYTES + 1)
    return line.endswith(b"\n") or len(line) > bounded_file.MOST_BYTES


def _is_record(data: Any) -> bool:
    return isinstance(data, dict) and data.get("format") == FORMAT


def _joined(records: list[RunRecord]) -> RunRecord:
    """The lines of one run: the last one, with the steps of all."""
    record = records[-1]
    for place, loader in enumerate(record.loaders):
        _prepend(loader, [each.loaders[place] for each in records[:-1] if len(each.loaders) > place])
    return record


def _prepend(loader: LoaderRecord, earlier: list[LoaderRecord]) -> None:
    """Put the steps of earlier lines before those of the last one."""
    if not earlier:
        return
    loader.steps_dropped += sum(each.steps_dropped for each in earlier)
    loader.steps, dropped = joined_steps([each.steps for each in (*earlier, loader)], KEPT_ROWS)
    loader.steps_dropped += dropped
