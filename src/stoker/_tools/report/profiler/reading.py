"""Reads Chrome JSON traces as streams of events: any size, packed or not, and damaged ones as far as they go.

A trace of a gigabyte is millions of small objects. They are decoded one by one from a text that is read piece by piece, so what is
in memory is one piece and what the caller keeps.
"""

from __future__ import annotations

import codecs
import contextlib
import io
import json
import re
import zlib
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

from stoker._host import bounded_json
from stoker._record.schema import FORMAT
from stoker.errors import TraceError

Event = dict[str, Any]

_PIECE = 1 << 20
_HEAD = 1 << 20
"""Characters within which a trace has to show that it is one."""
_MOST = 64 << 20
"""Characters that one value may take: beyond, it is damage."""
_LATEST_NS = (1 << 63) - 1
"""A moment in the year 2262: nothing later is believed."""
_GZIP = b"\x1f\x8b"
_BETWEEN = re.compile(r"[\s,]*")
_NEXT_EVENT = re.compile(r'\{\s*"ph"\s*:')
_SUFFIXES = (".json", ".json.gz")


def is_trace(path: Path) -> bool:
    """Whether this is a trace in Chrome's format, or a folder of them: one with run records is none.

    False also for what cannot be read.
    """
    try:
        if not path.is_dir():
            return _is_trace(_begin(path))
        begins = [
            _begin(each)
            for each in path.iterdir()
            if each.name.endswith((*_SUFFIXES, ".jsonl")) and each.is_file()
        ]
    except OSError:
        return False
    return any(map(_is_trace, begins)) and not any(f'"{FORMAT}"' in begin[:200] for begin in begins)


def _is_trace(begin: str) -> bool:
    if begin.startswith("["):
        return _NEXT_EVENT.search(begin[:65536]) is not None
    return begin.startswith("{") and '"traceEvents"' in begin


def _begin(path: Path) -> str:
    """As much of a file as tells what it is; what cannot be read is empty."""
    begin = ""
    with contextlib.suppress(OSError, _Cut), contextlib.closing(_pieces(path)) as pieces:
        for piece in pieces:
            begin += piece
            if len(begin) >= _HEAD:
                break
    return begin.lstrip("\ufeff \t\r\n")


def files(paths: list[Path]) -> list[Path]:
    """The traces among these files and in these folders. Raises TraceError when one is missing or a folder has none."""
    found: list[Path] = []
    for path in paths:
        if not path.exists():
            raise TraceError(f"there is no file {path}")
        if not path.is_dir():
            found.append(path)
            continue
        held = sorted(
            each
            for each in path.iterdir()
            if each.name.endswith(_SUFFIXES) and each.is_file() and is_trace(each)
        )
        if not held:
            raise TraceError(f"there is no trace of torch.profiler in the folder {path}")
        found += held
    return found


class TraceFile:
    """One file. ``events`` is read once; the rest is known when it has come to its end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries: dict[str, Any] = {}
        """What stands beside the events."""
        self.damage: str | None = None
        """What is wrong with the file, in words; None: it was read to its end."""
        self.skipped = 0
        """Events that could not be decoded, in the middle of others that could."""

    @property
    def base_unix_ns(self) -> int:
        """The moment that the file counts from. Before torch 2.4 that was the beginning of 1970."""
        base = self.entries.get("baseTimeNanoseconds", 0)
        return base if isinstance(base, int) and 0 <= base <= _LATEST_NS else 0

    def events(self) -> Iterator[Event]:
        """In the order of the file. Raises TraceError when it is no trace at all."""
        try:
            with contextlib.closing(_pieces(self.path)) as pieces:
                yield from self._read(_Text(pieces))
        except OSError as error:
            raise TraceError(f"cannot read {self.path}: {error.strerror or error}") from error

    def _read(self, text: _Text) -> Iterator[Event]:
        begun = text.peek()
        if begun == "[":
            text.place += 1
            yield from self._list(text)
        elif begun == "{":
            text.place += 1
            yield from self._object(text)
        else:
            raise TraceError(f"{self.path} is no trace: it does not begin as JSON does")
        self.damage = text.damage or self.damage

    def _object(self, text: _Text) -> Iterator[Event]:
        found = False
        while text.peek() not in ("}", ""):
            try:
                name = text.value()
                if text.peek() != ":":
                    raise ValueError("no colon")
                text.place += 1
                if name == "traceEvents" and text.peek() == "[":
                    text.place += 1
                    found = True
                    yield from self._list(text)
                else:
                    self.entries[str(name)] = text.value()
            except ValueError:
                if not found:
                    raise TraceError(f"{self.path} is no trace: it is not JSON") from None
                self.damage = "it was cut off in the middle, and was read up to there"
                return
        if not found:
            raise TraceError(f"{self.path} is no trace: it has no list of events ('traceEvents')")
        if text.peek() == "":
            self.damage = self.damage or "it was cut off in the middle, and was read up to there"

    def _list(self, text: _Text) -> Iterator[Event]:
        while (begun := text.peek()) not in ("]", ""):
            try:
                event = text.value() if begun == "{" else None
            except ValueError:
                event = None
            if isinstance(event, dict):
                yield event
            elif text.skip_to_event():
                self.skipped += 1
            else:
                return
        if text.peek() == "]":
            text.place += 1


class _Text:
    """A text that is read piece by piece, and a place in it."""

    def __init__(self, pieces: Iterator[str]) -> None:
        self._pieces = pieces
        self._held = ""
        self.place = 0
        self.damage: str | None = None

    def peek(self) -> str:
        """The next character that is no space and no comma; "": there is none."""
        while True:
            found = _BETWEEN.match(self._held, self.place)
            assert found is not None
            self.place = found.end()
            if self.place < len(self._held):
                return self._held[self.place]
            if not self._more():
                return ""

    def value(self) -> Any:
        """The JSON value here; the place is behind it then. Raises ValueError when there is none, or not the whole of it."""
        wanted = _PIECE
        self.peek()
        while True:
            try:
                value, self.place = _DECODER.raw_decode(self._held, self.place)
                bounded_json.require_flat(value)
                return value
            except RecursionError:
                raise ValueError("it is nested too deeply") from None
            except json.JSONDecodeError as error:
                # What is wrong before the end of what we hold does not get better with more text; but the place that is named
                # for an open string is where it began.
                cut = error.pos >= len(self._held) - 32 or error.msg.startswith("Unterminated string")
                if not cut or len(self._held) - self.place > _MOST or not self._more(wanted):
                    raise
                wanted *= 2

    def skip_to_event(self) -> bool:
        """Go to where the next event seems to begin. False: the text ends before."""
        self.place += 1
        while True:
            found = _NEXT_EVENT.search(self._held, self.place)
            if found is not None:
                self.place = found.start()
                return True
            self.place = max(self.place, len(self._held) - 64)
            if not self._more():
                self.place = len(self._held)
                return False

    def _more(self, wanted: int = _PIECE) -> bool:
        read: list[str] = []
        size = 0
        try:
            for piece in self._pieces:
                read.append(piece)
                size += len(piece)
                if size >= wanted:
                    break
        except _Cut as error:
            self.damage = str(error)
        if not size:
            return False
        self._held = self._held[self.place :] + "".join(read)
        self.place = 0
        return True


_DECODER = json.JSONDecoder(strict=False)


class _Cut(Exception):
    """The packing ended in the middle, or is damaged. What came before is good."""


def _pieces(path: Path) -> Generator[str, None, None]:
    """The text of a file. Packed or not is told by the first bytes: names lie."""
    decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
    with path.open("rb") as file:
        packed = file.read(2) == _GZIP
        file.seek(0)
        for piece in _unpacked(file) if packed else iter(lambda: file.read(_PIECE), b""):
            yield decode(piece)


def _unpacked(file: io.BufferedReader) -> Iterator[bytes]:
    unpacking: Any = None
    while piece := file.read(_PIECE // 64):
        while piece:
            unpacking = unpacking or zlib.decompressobj(wbits=31)
            try:
                yield unpacking.decompress(piece)
            except zlib.error:
                raise _Cut("its packing is damaged in the middle, and it was read up to there") from None
            piece = unpacking.unused_data
            if unpacking.eof:
                unpacking = None  # files may be packed in several members
    if unpacking is not None:
        raise _Cut("its packing was cut off in the middle, and it was read up to there")
