"""The trace format that Perfetto and chrome://tracing open: spans that nest on tracks, and how they become events.

A span is written as a begin and an end, not as one event with a length: neighbours then share one number, and no rounding that
a reader may do can make them overlap. Spans that do overlap are spread over lanes, each a track of its own: readers drop what
overlaps on one.
"""

from __future__ import annotations

import errno
import gzip
import heapq
import io
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, TextIO, cast

from stoker._host.private_files import followed, open_stream, replacing

Event = dict[str, Any]
CATEGORY = "stoker"


@dataclass(slots=True)
class TraceSpan:
    """Something that took time, from ``began_ns`` to ``ended_ns``, with what happened within it. ``parts`` follow each other."""

    name: str
    began_ns: int
    ended_ns: int
    args: dict[str, Any] | None = None
    parts: list[TraceSpan] = field(default_factory=list)
    flows: list[tuple[str, int]] = field(default_factory=list)
    """Arrows that begin ("s"), pass ("t") or end ("f") here, by number."""


@dataclass(frozen=True, slots=True)
class Track:
    """A track: whose it is, and how its moments become numbers of the file."""

    pid: int
    tid: int
    stamp: Callable[[int], float]


def lanes(spans: Iterable[TraceSpan]) -> list[list[TraceSpan]]:
    """Spread over as few lists as it takes for no two spans in one to overlap; the first is filled first. In order of time."""
    found: list[list[TraceSpan]] = []
    busy: list[tuple[int, int]] = []
    free: list[int] = []
    for span in sorted(spans, key=lambda each: (each.began_ns, each.ended_ns)):
        while busy and busy[0][0] <= span.began_ns:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            lane = heapq.heappop(free)
        else:
            lane = len(found)
            found.append([])
        found[lane].append(span)
        heapq.heappush(busy, (span.ended_ns, lane))
    return found


def events(spans: Iterable[TraceSpan], place: Track) -> Iterator[Event]:
    """Return the events of spans that do not overlap, in order of time."""
    for span in spans:
        event: Event = {"ph": "B", "cat": CATEGORY, "name": span.name, "pid": place.pid, "tid": place.tid}
        event["ts"] = place.stamp(span.began_ns)
        if span.args:
            event["args"] = span.args
        yield event
        for phase, number in span.flows:
            yield _arrow(phase, number, event)
        yield from events(span.parts, place)
        yield {
            "ph": "E", "cat": CATEGORY, "name": span.name, "pid": place.pid, "tid": place.tid,
            "ts": place.stamp(span.ended_ns),
        }  # fmt: skip


def _arrow(phase: str, number: int, at: Event) -> Event:
    """Bound to the span that has just begun."""
    arrow: Event = {
        "ph": phase, "cat": CATEGORY, "name": "batch", "id": number, "pid": at["pid"], "tid": at["tid"], "ts": at["ts"],
    }  # fmt: skip
    if phase == "f":
        arrow["bp"] = "e"
    return arrow


def name_process(pid: int, name: str, order: int) -> Iterator[Event]:
    """What a group of tracks is called, and its place among groups."""
    yield _metadata("process_name", pid, pid, name=name)
    yield _metadata("process_sort_index", pid, pid, sort_index=order)


def name_track(at: Track, name: str, order: int) -> Iterator[Event]:
    """What a track is called, and its place in its group."""
    yield _metadata("thread_name", at.pid, at.tid, name=name)
    yield _metadata("thread_sort_index", at.pid, at.tid, sort_index=order)


def _metadata(kind: str, pid: int, tid: int, **args: Any) -> Event:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "ts": 0, "args": args}


def counter(name: str, unit: str, value: float, at: Track, moment_ns: int) -> Event:
    """One reading of a counter of a group."""
    return {
        "ph": "C", "cat": CATEGORY, "name": name, "pid": at.pid, "tid": at.tid, "ts": at.stamp(moment_ns), "args": {unit: value},
    }  # fmt: skip


def instant(name: str, args: dict[str, Any], at: Track, moment_ns: int) -> Event:
    """Something that happened to the whole group."""
    return {
        "ph": "i", "s": "p", "cat": CATEGORY, "name": name, "pid": at.pid, "tid": at.tid, "ts": at.stamp(moment_ns), "args": args,
    }  # fmt: skip


def write(found: Iterable[Event], entries: dict[str, Any], path: Path, *, force: bool = False) -> int:
    """A file of these events, packed when its name ends in ``.gz``; the number of events. It appears whole or not at all.

    ``entries`` stand beside the events, and are read when the last of them has come. Raises FileExistsError when there is such
    a file and ``force`` is not given. What is no file, a pipe or /dev/null, is written to and not replaced.
    """
    if not force and path.exists():
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    packed, path = path.suffix == ".gz", followed(path)
    if path.exists() and not path.is_file():
        with open(open_stream(path), "wb") as pipe, _text(pipe, packed=packed) as file:
            return _write(found, entries, file)
    with replacing(path, mode=0o666) as fd:
        with open(fd, "wb", closefd=False) as raw, _text(raw, packed=packed) as file:
            written = _write(found, entries, file)
        if not force:
            path.open("x").close()  # refuses one that came meanwhile
    return written


def _text(file: BinaryIO, *, packed: bool) -> TextIO:
    inner = cast(BinaryIO, gzip.GzipFile("", "wb", 5, file, 0)) if packed else file
    return io.TextIOWrapper(inner, encoding="utf-8")


def _write(found: Iterable[Event], entries: dict[str, Any], file: TextIO) -> int:
    """One event per line, as they come: a long run's never are in memory together."""
    number = 0
    file.write('{"traceEvents":[')
    for event in found:
        file.write((",\n" if number else "\n") + _encoded(event))
        number += 1
    file.write("\n]")
    for name, value in entries.items():
        file.write(f",\n{_encoded(name)}:{_encoded(value)}")
    file.write("}\n")
    return number


_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False, default=repr).encode


def _encoded(value: Any) -> str:
    try:
        return _encode(value)
    except ValueError:
        return _encode(_finite(value))


def _finite(value: Any) -> Any:
    """Profilers write numbers that JSON does not have, and readers then refuse the whole file."""
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
