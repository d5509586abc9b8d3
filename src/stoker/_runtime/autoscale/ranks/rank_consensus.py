"""Local ranks agree on the number of workers without collectives, through a file that all of them can read.

    every rank:  report(observation) ──► its row ──┐
    the leader:  combined(observation) ◄───────────┴── rows of the others      policy ──► publish(workers) ──► its row
    every rank:  target() ◄── the last published decision of a live rank

No rank waits for another. The leader is the lowest live local rank; when it dies, the next one leads.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from stoker._host.local_ranks import job, local_rank, local_ranks
from stoker._host.private_files import private_folder
from stoker._record.run_page.page import started
from stoker._runtime.autoscale.ranks import rank_file
from stoker._runtime.autoscale.ranks.rank_file import RankRow
from stoker._runtime.autoscale.ranks.rank_report import RankReport, combined
from stoker._runtime.autoscale.types import Observation
from stoker._runtime.protocol.parent_descriptors import close_private, keep_private

FRESH_NS = 60_000_000_000
"""An older report is ignored: its rank does something else now."""

MOST_APART = 5
"""A rank may have another number of workers than the leader for so many observations. After that its report counts again."""

_log = logging.getLogger("stoker")


class AgreedWorkers(NamedTuple):
    """The published decision for all ranks. ``sequence`` only grows. ``window`` 0: follows the number of workers."""

    sequence: int
    workers: int
    window: int = 0
    split: bool = False


class RankConsensus:
    """One loader's row in its job's file. Called on the thread that iterates; never waits and never raises.

    The rank that ``leads`` runs the policy on ``combined`` observations and publishes. The others report and follow ``target``.
    If the file fails, nobody leads and nothing is published, so that all numbers stay as they are. In a forked child it does
    nothing.
    """

    def __init__(self, path: Path, fd: int, rank: int, ranks: int, row: RankRow) -> None:
        self.rank = rank
        self.ranks = ranks
        self._path = path
        self._fd: int | None = fd
        self._row = row
        self._apart = 0
        self._latest = 0
        """The highest sequence number seen so far. The next one is above it, even if its rank has left."""

    @classmethod
    def join(cls, environ: Mapping[str, str], key: str) -> RankConsensus | None:
        """Take the row of this rank's loader. None if there is no other local rank, or if there can be no file.

        ``key`` tells the loaders of a process apart and is the same in all ranks: the data, and a number among equal ones.
        """
        ranks, _ = local_ranks(environ)
        rank, which = local_rank(environ), job(environ)
        if ranks < 2 or rank is None or which is None:
            return None
        try:
            place = private_folder(environ)
            rank_file.remove_dead(place)
            path = place / rank_file.name_of(which, key)
            row = RankRow(os.getpid(), started() or 0, int.from_bytes(os.urandom(7), "little"), 0)
            fd = rank_file.take_row(path, rank, row)
        except Exception as error:  # a loader works without one
            _log.warning("local ranks cannot agree on the number of workers, each has its own: %s", error)
            return None
        keep_private(fd)
        return cls(path, fd, rank, ranks, row)

    @property
    def leads(self) -> bool:
        """Whether this rank decides for all: it is the lowest live local rank."""
        rows = self._rows()
        return rows is not None and not any(each is not None and each.alive for each in rows[: self.rank])

    def report(self, observation: Observation) -> None:
        """Write this rank's observation for the leader."""
        self._write(self._row._replace(at_ns=time.monotonic_ns(), report=RankReport.of(observation)))

    def combined(self, observation: Observation) -> Observation:
        """For the leader: its own observation with the values of the rank that waits most.

        While a rank has not followed yet, the observation is marked as ``warm_up``.
        """
        since_ns = time.monotonic_ns() - FRESH_NS
        others = [
            each.report
            for _, each in self._others()
            if each.report is not None and each.at_ns > since_ns and each.alive
        ]
        apart = any(each.workers != observation.workers for each in others)
        self._apart = self._apart + 1 if apart else 0
        whole = combined(observation, others)
        if apart and self._apart <= MOST_APART:
            return replace(whole, warm_up=True)
        return whole

    def publish(self, workers: int, window: int = 0, *, split: bool = False) -> None:
        """Publish the number of workers for all ranks."""
        if self._rows() is not None:
            number, row = self._latest + 1, self._row
            self._write(row._replace(sequence=number, workers=workers, window=window, split=int(split)))

    def target(self) -> AgreedWorkers | None:
        """The last published decision of a live rank; None before the first one. All ranks see the same."""
        if self._rows() is None:
            return None
        # If two ranks led at the same time, the lower rank counts, for every reader.
        numbered = [(self.rank, self._row), *self._others()]
        said = [(row.sequence, -rank, row) for rank, row in numbered if row.sequence]
        for sequence, _, row in sorted(said, reverse=True):
            if row.token == self._row.token or row.alive:
                return AgreedWorkers(sequence, row.workers, row.window, bool(row.split))
        return None

    def close(self) -> None:
        """Give the row up. Idempotent. A row that another process has taken stays as it is."""
        fd, self._fd = self._fd, None
        if fd is None or self._row.pid != os.getpid():
            return
        with suppress(Exception):
            mine = rank_file.read(fd, self.ranks)[self.rank]
            if mine is not None and mine.token == self._row.token:
                rank_file.release(self._path, fd, self.rank)
        with suppress(OSError):
            close_private(fd)

    def _rows(self) -> list[RankRow | None] | None:
        """All rows of the file; None if this rank cannot use it any more."""
        if self._fd is None or self._row.pid != os.getpid():
            return None
        try:
            rows = rank_file.read(self._fd, self.ranks)
        except OSError as error:
            self._give_up(str(error))
            return None
        mine = rows[self.rank]
        if mine is not None and mine.token != self._row.token:
            self._give_up("another process has this rank's row")
            return None
        self._latest = max(
            self._latest, self._row.sequence, *(each.sequence for each in rows if each is not None)
        )
        return rows

    def _others(self) -> list[tuple[int, RankRow]]:
        rows = self._rows() or ()
        return [(rank, row) for rank, row in enumerate(rows) if row is not None and rank != self.rank]

    def _write(self, row: RankRow) -> None:
        if self._rows() is None or self._fd is None:
            return
        try:
            rank_file.write(self._fd, self.rank, row)
        except OSError as error:
            self._give_up(str(error))
            return
        self._row = row

    def _give_up(self, reason: str) -> None:
        _log.warning("local ranks no longer agree on the number of workers, it stays as it is: %s", reason)
        fd, self._fd = self._fd, None
        if fd is not None:
            with suppress(OSError):
                close_private(fd)
