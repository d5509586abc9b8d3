"""Local ranks agree on the number of workers without collectives, through a file that all of them can read.

    every rank:  report(window) ──► its row ──┐
    the leader:  gathered(window) ◄───────────┴── rows of the others      policy ──► publish(workers) ──► its row
    every rank:  target() ◄── what was published last by somebody who is alive

Nobody waits for anybody. The leader is the lowest local rank that is alive; when it dies the next one leads.
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
from stoker._record.run_page.page import started
from stoker._runtime.autoscale import rank_file
from stoker._runtime.autoscale.rank_file import RankRow
from stoker._runtime.autoscale.rank_report import RankReport, gathered
from stoker._runtime.autoscale.types import Observation
from stoker._runtime.protocol.parent_descriptors import close_private, keep_private

FRESH_NS = 60_000_000_000
"""A report older than this is no longer about what is going on: its rank does something else."""

MOST_APART = 5
"""Windows during which a rank may have another number of workers than the leader, before that is taken as it is."""

_log = logging.getLogger("stoker")


class AgreedWorkers(NamedTuple):
    """The published decision for all ranks. ``sequence`` only grows. ``window`` 0: follows the number of workers."""

    sequence: int
    workers: int
    window: int = 0
    split: bool = False


class RankConsensus:
    """One loader's row in its job's file. Called on the thread that iterates; never waits, and never raises.

    The one that ``leads`` runs the policy on ``gathered`` windows and publishes; the others report and follow ``target``. Where the
    page fails, nobody leads and nothing is published: everything stays as it is. In a forked child it is inert.
    """

    def __init__(self, path: Path, fd: int, rank: int, ranks: int, seat: RankRow) -> None:
        self.rank = rank
        self.ranks = ranks
        self._path = path
        self._fd: int | None = fd
        self._seat = seat
        self._apart = 0
        self._latest = 0
        """The highest sequence number that was ever seen here: the next one is above it, whoever has left."""

    @classmethod
    def join(cls, environ: Mapping[str, str], key: str) -> RankConsensus | None:
        """The seat of this rank's loader; None where the environment tells of no other local rank, or there can be no page.

        ``key`` tells the loaders of a process apart and is the same in all ranks: what is loaded, and the number among those alike.
        """
        ranks, _ = local_ranks(environ)
        rank, which = local_rank(environ), job(environ)
        if ranks < 2 or rank is None or which is None:
            return None
        try:
            place = rank_file.folder(environ)
            rank_file.sweep(place)
            path = place / rank_file.name_of(which, key)
            seat = RankRow(os.getpid(), started() or 0, int.from_bytes(os.urandom(7), "little"), 0)
            fd = rank_file.take(path, rank, seat)
        except Exception as error:  # a loader works without one
            _log.warning("local ranks cannot agree on the number of workers, each has its own: %s", error)
            return None
        keep_private(fd)
        return cls(path, fd, rank, ranks, seat)

    @property
    def leads(self) -> bool:
        """Whether this rank decides for all: the lowest local rank that is alive."""
        rows = self._rows()
        return rows is not None and not any(each is not None and each.alive for each in rows[: self.rank])

    def report(self, window: Observation) -> None:
        """What this rank saw, for the one that leads."""
        self._write(self._seat._replace(at_ns=time.monotonic_ns(), report=RankReport.of(window)))

    def gathered(self, window: Observation) -> Observation:
        """For the one that leads: its own window with the numbers of the rank that waits most.

        While a rank has not followed yet it is no window to go by.
        """
        since_ns = time.monotonic_ns() - FRESH_NS
        others = [
            each.report
            for _, each in self._others()
            if each.report is not None and each.at_ns > since_ns and each.alive
        ]
        apart = any(each.workers != window.workers for each in others)
        self._apart = self._apart + 1 if apart else 0
        whole = gathered(window, others)
        if apart and self._apart <= MOST_APART:
            return replace(whole, warm_up=True)
        return whole

    def publish(self, workers: int, window: int = 0, *, split: bool = False) -> None:
        """Let all ranks have so many workers from now on."""
        if self._rows() is not None:
            number, seat = self._latest + 1, self._seat
            self._write(seat._replace(sequence=number, workers=workers, window=window, split=int(split)))

    def target(self) -> AgreedWorkers | None:
        """What was published last, by a rank that is alive; None before the first time. All ranks see the same."""
        if self._rows() is None:
            return None
        # Of two that led at the same moment the lower rank counts, whoever asks.
        numbered = [(self.rank, self._seat), *self._others()]
        said = [(seat.sequence, -rank, seat) for rank, seat in numbered if seat.sequence]
        for sequence, _, seat in sorted(said, reverse=True):
            if seat.token == self._seat.token or seat.alive:
                return AgreedWorkers(sequence, seat.workers, seat.window, bool(seat.split))
        return None

    def close(self) -> None:
        """Give the seat up. Idempotent. A seat that somebody else has by now stays theirs."""
        fd, self._fd = self._fd, None
        if fd is None or self._seat.pid != os.getpid():
            return
        with suppress(Exception):
            mine = rank_file.read(fd, self.ranks)[self.rank]
            if mine is not None and mine.token == self._seat.token:
                rank_file.vacate(self._path, fd, self.rank)
        with suppress(OSError):
            close_private(fd)

    def _rows(self) -> list[RankRow | None] | None:
        """The page as it is now; None where there is none for us any more."""
        if self._fd is None or self._seat.pid != os.getpid():
            return None
        try:
            rows = rank_file.read(self._fd, self.ranks)
        except OSError as error:
            self._give_up(str(error))
            return None
        mine = rows[self.rank]
        if mine is not None and mine.token != self._seat.token:
            self._give_up("another process has this rank's seat")
            return None
        self._latest = max(
            self._latest, self._seat.sequence, *(each.sequence for each in rows if each is not None)
        )
        return rows

    def _others(self) -> list[tuple[int, RankRow]]:
        rows = self._rows() or ()
        return [(rank, seat) for rank, seat in enumerate(rows) if seat is not None and rank != self.rank]

    def _write(self, seat: RankRow) -> None:
        if self._rows() is None or self._fd is None:
            return
        try:
            rank_file.write(self._fd, self.rank, seat)
        except OSError as error:
            self._give_up(str(error))
            return
        self._seat = seat

    def _give_up(self, reason: str) -> None:
        _log.warning("local ranks no longer agree on the number of workers, it stays as it is: %s", reason)
        fd, self._fd = self._fd, None
        if fd is not None:
            with suppress(OSError):
                close_private(fd)
