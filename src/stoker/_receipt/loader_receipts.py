"""Keeps the receipts of one loader over its epochs, and carries them on through its states.

A state has one line of text: the number of the epoch, its sums so far, and the digest of the epoch before. The receipt of a loader
that goes on from it begins with these. They depend on the data alone, so equal runs have equal states.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from stoker._receipt.data_receipt import NOTHING, DataReceipt, ReceiptBefore, digits
from stoker._receipt.mixing import MASK
from stoker._receipt.receipt_writer import ReceiptWriter
from stoker._record.schema import ReceiptSummary

_KEPT = 100
"""Epochs of which the record has a summary: the last ones."""
_TEXT_VERSION = "1"


@dataclass(frozen=True, slots=True)
class StateReceipt:
    """What the text in a state says. ``before`` is empty between two epochs; ``previous`` is the digest of the epoch before.

    ``ranks`` is the rank that wrote it and the number of ranks: the sums are of that rank alone.
    """

    epoch: int
    before: ReceiptBefore
    previous: int
    ranks: str = "0/1"

    def text(self) -> str:
        """Return it as it stands in a state."""
        was = self.before
        counts = f"{_TEXT_VERSION} {self.ranks} {self.epoch} {was.batches} {was.samples}"
        return f"{counts} {digits(was.digest)} {digits(was.samples_digest)} {digits(self.previous)}"

    @staticmethod
    def parse(text: str | None) -> StateReceipt | None:
        """The inverse. None for a state without one, or with a newer or damaged one: data can be resumed without it."""
        with suppress(ValueError):
            version, ranks, *counts = (text or "").split()[:5]
            epoch, batches, samples = map(int, counts)
            digest, samples_digest, previous = (int(each, 16) & MASK for each in (text or "").split()[5:])
            if version == _TEXT_VERSION and min(epoch, batches, samples) >= 0:
                before = ReceiptBefore(batches, samples, digest, samples_digest)
                return StateReceipt(epoch, before, previous, ranks)
        return None


class LoaderReceipts:
    """Owner: the state of a loader. On the thread that iterates it; ``summaries`` on any."""

    def __init__(self) -> None:
        self._epoch = 0
        """The number of the next epoch."""
        self._previous = 0
        self.id = int.from_bytes(os.urandom(7))
        """A number that no other loader has. Random generators are left alone."""
        self._current: ReceiptWriter | None = None
        self._past: deque[ReceiptWriter] = deque(maxlen=_KEPT - 1)
        self._sink: Callable[[], Path | None] | None = None

    def connect(self, sink: Callable[[], Path | None]) -> None:
        """Ask this for the file that receipts are written to."""
        self._sink = sink

    def begin(self, writer: ReceiptWriter, *, loaded: bool, text: str | None, rest: bool) -> None:
        """An iteration begins. ``loaded``: from a state, which has this ``text``. ``rest``: in the middle of its epoch."""
        before, earlier = None, self._current
        if earlier is not None:
            earlier.settle_earlier()  # nothing is left to do, unless that epoch had less than two batches
            self._past.append(earlier)
            if loaded:
                earlier.forget()
                earlier = None
        if loaded:
            said = StateReceipt.parse(text)
            self._epoch = self._epoch if said is None else said.epoch
            own = said is not None and said.ranks == _ranks(writer)  # all ranks may load the state of one
            self._previous = said.previous if said is not None and own else 0
            before = said.before if said is not None and own and rest else None
        begun = replace(
            writer.totals, epoch=self._epoch, resumed=loaded, previous=self._previous, before=before
        )
        writer.begin(begun, self._sink, earlier)
        self._epoch += 1
        self._current = writer

    def state_text(self, writer: ReceiptWriter | None, *, before_last: bool = False) -> str:
        """For a state: of the epoch of this writer, without its last batch on request, or between two epochs."""
        last = self._current
        if writer is not None:
            sums = writer.sums(before_last=before_last)
            writer.write_when_due(state=True)  # a later leg may begin here
            return StateReceipt(writer.totals.epoch, sums, writer.totals.previous, _ranks(writer)).text()
        if last is not None:
            return StateReceipt(self._epoch, NOTHING, last.sums().digest, _ranks(last)).text()
        return StateReceipt(self._epoch, NOTHING, 0).text()

    def receipt(self) -> DataReceipt | None:
        """Return the receipt of the iteration that began last; None before the first."""
        return None if self._current is None else self._current.receipt()

    def summaries(self) -> list[ReceiptSummary]:
        """Return the sums of the last epochs, for the record. The one under way may be some thousand samples behind. Any thread."""
        current = self._current
        writers = [*self._past, *([] if current is None else [current])]
        return [summary(each.totals) for each in writers]


def _ranks(writer: ReceiptWriter) -> str:
    facts = writer.totals.facts
    return f"{facts.rank}/{facts.world_size}"


def summary(receipt: DataReceipt) -> ReceiptSummary:
    """A receipt as a record has it."""
    return ReceiptSummary(
        epoch=receipt.epoch,
        rank=receipt.facts.rank,
        world_size=receipt.facts.world_size,
        resumed=receipt.resumed,
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
