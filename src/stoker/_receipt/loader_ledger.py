"""Keeps the receipts of one loader over its epochs, and carries them on through its states.

A state has one line of text: the run and leg that wrote it, the epoch, and the sums of that epoch so far. A loader that goes on
from it begins a new leg of the same run.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from stoker._receipt.data_receipt import DataReceipt, ReceiptBefore, digits
from stoker._receipt.ledger import EpochLedger
from stoker._receipt.mixing import MASK
from stoker._record.schema import ReceiptSummary

_KEPT = 100
"""Epochs of which the record has a summary: the last ones."""
_TEXT_VERSION = "1"
_names: Counter[str] = Counter()


@dataclass(frozen=True, slots=True)
class StateReceipt:
    """What the text in a state says. ``before`` is empty between two epochs."""

    root: int
    segment: int
    leg: int
    epoch: int
    before: ReceiptBefore

    def text(self) -> str:
        """As it stands in a state."""
        was = self.before
        sums = digits(was.digest), digits(was.samples_digest)
        return " ".join(
            map(
                str,
                (_TEXT_VERSION, digits(self.root), digits(self.segment), self.leg, self.epoch, was.batches, was.samples, *sums),
            )
        )  # fmt: skip

    @staticmethod
    def parse(text: str | None) -> StateReceipt | None:
        """The inverse. None for a state without one, or with a newer or damaged one: data can be resumed without it."""
        with suppress(ValueError):
            version, root, segment, leg, epoch, batches, samples, digest, samples_digest = (
                text or ""
            ).split()
            if version == _TEXT_VERSION:
                before = ReceiptBefore(
                    int(batches), int(samples), int(digest, 16) & MASK, int(samples_digest, 16) & MASK
                )
                return StateReceipt(
                    int(root, 16) & MASK, int(segment, 16) & MASK, int(leg), int(epoch), before
                )
        return None


_NOTHING = ReceiptBefore(0, 0, 0, 0)


class LoaderLedger:
    """Owner: the state of a loader. On the thread that iterates it; ``summaries`` on any."""

    def __init__(self) -> None:
        self._root = self._segment = 0
        self._parent: int | None = None
        self._leg = 0
        self._epoch = 0
        """The number of the next epoch."""
        self._number: int | None = None
        self._current: EpochLedger | None = None
        self._past: deque[EpochLedger] = deque(maxlen=_KEPT - 1)
        self._sink: Callable[[], Path | None] | None = None

    def connect(self, sink: Callable[[], Path | None]) -> None:
        """Ask this for the file that receipts are written to."""
        self._sink = sink

    def number(self, name: str) -> int:
        """How many loaders of this name were iterated before in this process."""
        if self._number is None:
            self._number = _names[name]
            _names[name] += 1
        return self._number

    def begin(self, ledger: EpochLedger, *, loaded: bool, text: str | None, rest: bool) -> None:
        """An iteration begins. ``loaded``: from a state, which has this ``text``. ``rest``: in the middle of its epoch."""
        before = None
        if loaded:
            said = StateReceipt.parse(text)
            self._parent = None if said is None else said.segment
            self._root = _drawn() if said is None else said.root
            self._segment = _drawn()
            self._leg = 1 if said is None else said.leg + 1
            self._epoch = self._epoch if said is None else said.epoch
            before = said.before if said is not None and rest else None
        self._name_run()
        if self._current is not None:
            self._current.forget()
            self._past.append(self._current)
        begun = replace(
            ledger.totals,
            root=self._root,
            segment=self._segment,
            parent=self._parent,
            leg=self._leg,
            epoch=self._epoch,
            before=before,
        )
        ledger.begin(begun, self._sink)
        self._epoch += 1
        self._current = ledger

    def state_text(self, ledger: EpochLedger | None) -> str:
        """For a state: of the epoch of this ledger, or between two epochs."""
        self._name_run()
        if ledger is None:
            return StateReceipt(self._root, self._segment, self._leg, self._epoch, _NOTHING).text()
        ledger.fold()
        ledger.write()  # a checkpoint is what a later leg takes up
        now = ledger.totals
        was = now.before or _NOTHING
        sums = ReceiptBefore(
            now.end,
            was.samples + now.samples,
            (was.digest + now.digest) & MASK,
            (was.samples_digest + now.samples_digest) & MASK,
        )
        return StateReceipt(now.root, now.segment, now.leg, now.epoch, sums).text()

    def receipt(self) -> DataReceipt | None:
        """Of the iteration that began last; None before the first."""
        return None if self._current is None else self._current.receipt()

    def summaries(self) -> list[ReceiptSummary]:
        """Of the last epochs, for the record. The one under way may be some thousand samples behind. Any thread."""
        current = self._current
        ledgers = [*self._past, *([] if current is None else [current])]
        return [summary(each.totals) for each in ledgers]

    def _name_run(self) -> None:
        if not self._root:
            self._root, self._segment = _drawn(), _drawn()


def summary(receipt: DataReceipt) -> ReceiptSummary:
    """A receipt as a record has it."""
    return ReceiptSummary(
        epoch=receipt.epoch,
        leg=receipt.leg,
        root=digits(receipt.root),
        rank=receipt.facts.rank,
        world_size=receipt.facts.world_size,
        first_batch=receipt.first,
        batches=receipt.batches,
        samples=receipt.samples,
        finished=receipt.finished,
        seed=receipt.seed,
        digest=digits(receipt.digest),
        samples_digest=digits(receipt.samples_digest),
        bad_samples=receipt.bad_count,
        failed_batches=receipt.failed_count,
    )


def _drawn() -> int:
    """A number that no other run has. Random generators are left alone."""
    return int.from_bytes(os.urandom(8)) or 1
