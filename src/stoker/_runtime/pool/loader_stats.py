"""Counts batches, worker deaths, stalls and bad samples for ``loader.stats()``, and logs each kind of problem once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from stoker._runtime.device.copy_times import CopyTimes
from stoker._runtime.pool.cache_tally import CacheTally
from stoker._runtime.worker.bad_samples import BadSample, StreamPlace, key_of

_log = logging.getLogger("stoker")
_KEPT = 10_000
"""Bad samples that are kept by index. Further ones are only counted."""


@dataclass(slots=True)
class BadRecord:
    """One bad sample: how often it came up, and why it was bad the last time."""

    times: int
    kind: str
    reason: str


@dataclass(slots=True)
class LoaderStats:
    """The counts of one loader, over all its iterations. Written on the thread that iterates.

    ``killers`` are the keys (``key_of``) of samples that killed their worker.
    """

    name: str
    batches: int = 0
    empty_batches: int = 0
    deaths: int = 0
    stalls: int = 0
    bad_count: int = 0
    bad: dict[Any, BadRecord] = field(default_factory=dict)
    killers: set[Any] = field(default_factory=set)
    warned: set[str] = field(default_factory=set)
    cache: CacheTally = field(default_factory=CacheTally)
    copy_times: CopyTimes | None = None
    """Of the device that batches go to."""
    tell: Callable[[str, str], None] | None = None
    """Gets the kind and reason of each event; None without a recorder."""

    def note_batch(self) -> None:
        """A batch was handed over."""
        self.batches += 1

    def note_empty_batch(self) -> None:
        """A batch without any good sample was skipped."""
        self.empty_batches += 1

    def note_death(self) -> None:
        """A worker died."""
        self.deaths += 1

    def report_to(self, tell: Callable[[str, str], None]) -> None:
        """Send events there from now on, as kind and reason."""
        self.tell = tell

    def note_bad(self, samples: Sequence[BadSample], mode: str) -> None:
        """Count bad samples of a delivered batch. Each index is logged once."""
        for index, _, kind, reason in samples:
            self.bad_count += 1
            key = key_of(index)
            if kind == "killed":
                self.killers.add(key)
            record = self.bad.get(key)
            if record is not None:
                record.times, record.kind, record.reason = record.times + 1, kind, reason
                continue
            if len(self.bad) >= _KEPT:
                continue
            self.bad[key] = BadRecord(1, kind, reason)
            what = index if isinstance(index, StreamPlace) else f"dataset index {index!r}"
            self.event("bad_sample", f"{what} is bad ({reason}): {_DONE[mode]}")
            self.warn(f"{what} is bad ({reason}): {_DONE[mode]}")
            if len(self.bad) == _KEPT:
                self.warn(f"{_KEPT} samples are bad; further ones are only counted")

    def note_stall(self, told: str) -> None:
        """Count a stall that was warned of, and log it in one line."""
        self.stalls += 1
        self.event("stall", told)
        with suppress(Exception):
            _log.info("%s", told)

    def event(self, kind: str, reason: str) -> None:
        """Send an event to the recorder."""
        if self.tell is not None:
            self.tell(kind, reason)

    def counts(self) -> dict[str, int]:
        """The counts by their names in a record."""
        counts = {
            "batches": self.batches,
            "empty_batches": self.empty_batches,
            "worker_deaths": self.deaths,
            "stalls": self.stalls,
            "bad_samples": self.bad_count,
        }
        copied_ns = None if self.copy_times is None else self.copy_times.copied_ns
        return counts if copied_ns is None else {**counts, "copied_ns": copied_ns}

    def warn(self, text: str) -> None:
        """Log a warning. Exceptions of the user's log handlers are ignored, so that they cost no batch."""
        with suppress(Exception):
            _log.warning("%s: %s", self.name, text)

    def warn_once(self, key: str, text: str) -> None:
        """Log a warning, unless one with this key was logged."""
        if key not in self.warned:
            self.warned.add(key)
            self.warn(text)

    def as_dict(self) -> dict[str, Any]:
        """All counts as a new, plain dict."""
        return {
            "name": self.name,
            "batches": self.batches,
            "empty_batches": self.empty_batches,
            "worker_deaths": self.deaths,
            "stalls": self.stalls,
            "bad_samples": {
                "count": self.bad_count,
                "indices": {
                    key: {"times": record.times, "kind": record.kind, "reason": record.reason}
                    for key, record in list(self.bad.items())  # a copy, because another thread may add some
                },
            },
        }


_DONE = {"skip": "skipped", "replace": "another sample takes its place"}
