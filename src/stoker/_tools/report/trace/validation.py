"""Checks that a trace is valid for every reader. Our tests run it on each trace; anybody who writes traces may."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

Track = tuple[object, object]


def violations(events: Iterable[dict[str, Any]]) -> list[str]:
    """Return the rules that the trace breaks, in words; empty: it is valid.

    On a track spans nest and never overlap, begins and ends pair by name, and time does not go back; tracks and groups have
    names; a counter's readings are numbers, in order; an arrow begins once, ends once, later than it began, and each of its
    points lies in a span.
    """
    check = _TraceCheck()
    for event in events:
        check.see(event)
    return check.end()


class _TraceCheck:
    def __init__(self) -> None:
        self.found: list[str] = []
        self.open: dict[Track, list[tuple[str, float]]] = defaultdict(list)
        """Per track, spans that are open: their name, and for one with a length its end."""
        self.last: dict[object, float] = {}
        self.named: set[object] = set()
        self.used: set[object] = set()
        self.tids: dict[object, object] = {}
        self.arrows: dict[object, list[tuple[str, float]]] = defaultdict(list)

    def see(self, event: dict[str, Any]) -> None:
        phase, pid, tid = event.get("ph"), event.get("pid"), event.get("tid")
        stamp = event.get("ts")
        if not isinstance(stamp, int | float) or isinstance(stamp, bool):
            self.found.append(f"an event without a time: {event}")
            return
        if phase == "M":
            self.named.add(
                pid
                if event["name"] == "process_name"
                else (pid, tid)
                if event["name"] == "thread_name"
                else None
            )
            return
        self.used |= {pid, (pid, tid)}
        if self.tids.setdefault(tid, pid) != pid:
            self.found.append(
                f"the number {tid} is a track of two groups: Perfetto gives both the name of one"
            )
        if phase == "C":
            self._counter(event, stamp)
        elif phase in ("B", "E", "X"):
            self._span(event, (pid, tid), stamp)
        elif phase in ("s", "t", "f"):
            self._arrow(event, (pid, tid), stamp)
        elif phase != "i":
            self.found.append(f"an event of an unknown kind: {event}")

    def _span(self, event: dict[str, Any], track: Track, stamp: float) -> None:
        self._in_order(track, stamp, event)
        held = self.open[track]
        while held and held[-1][1] <= stamp:
            held.pop()
        if event["ph"] == "E":
            if not held or held[-1][0] != event["name"]:
                self.found.append(f"an end without its begin: {event}")
            else:
                held.pop()
            return
        ends = stamp + event["dur"] if event["ph"] == "X" else float("inf")
        if held and ends != float("inf") and ends > held[-1][1]:
            self.found.append(f"a span that ends after the one around it: {event}")
        held.append((event["name"], ends))

    def _counter(self, event: dict[str, Any], stamp: float) -> None:
        self._in_order((event["pid"], event["name"], "counter"), stamp, event)
        if not event.get("args") or not all(isinstance(each, int | float) for each in event["args"].values()):
            self.found.append(f"a counter that is no number: {event}")

    def _arrow(self, event: dict[str, Any], track: Track, stamp: float) -> None:
        self._in_order(track, stamp, event)
        if not self.open[track]:
            self.found.append(f"an arrow that is bound to no span: {event}")
        self.arrows[event["cat"], event["id"]].append((event["ph"], stamp))

    def _in_order(self, key: object, stamp: float, event: dict[str, Any]) -> None:
        if stamp < self.last.get(key, stamp):
            self.found.append(f"time goes back: {event}")
        self.last[key] = stamp

    def end(self) -> list[str]:
        for track, held in self.open.items():
            self.found += [
                f"a span that never ends: {name} on {track}" for name, ends in held if ends == float("inf")
            ]
        self.found += [f"no name for {each}" for each in self.used - self.named]
        for key, points in self.arrows.items():
            # As readers do: by time, and within one moment as they stand in the file.
            phases = "".join(phase for phase, _ in sorted(points, key=lambda each: each[1]))
            if not re.fullmatch("st*f", phases):
                self.found.append(f"an arrow that does not begin once, then end once: {key}: {phases}")
        return self.found
