"""Keeps the receipt of one iteration while it goes on.

    note ──(indices, packed)──► some kB ──(every few thousand rows: fold)──► sums, sketch, one entry per batch ──► file

``note`` is on the path of every batch, so it only packs the indices. Hashing is done in bulk by ``fold``.
Memory is bounded: an epoch of more than a million batches keeps one entry for every 2, 4, 8… of them.
"""

from __future__ import annotations

import atexit
import os
import struct
import sys
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from stoker._receipt import receipt_file, sketch
from stoker._receipt.data_receipt import NOTHING, DataReceipt, ReceiptBefore, ReceiptFacts, coarser
from stoker._receipt.index_keys import index_keys
from stoker._receipt.mixing import MASK, Words, batch_hashes, keyed, mix, total, words

_FOLD_ROWS = 8192
_FOLD_BATCHES = 4096
_MOST_PACKERS = 256
MOST_ENTRIES = 1 << 20
"""Entries that are kept: 8 MB."""
_KEPT = 1000
"""Bad samples and failed batches that are kept one by one. Further ones are only counted."""
_CONTENTS = 8
_FIRST_GAP_NS, _GAP_NS = 500_000_000, 5_000_000_000
"""Time between two writes to the file, at first and later."""

_writing: weakref.WeakSet[EpochLedger] = weakref.WeakSet()


class EpochLedger:
    """Owner: the progress of an iteration; on the thread that iterates. A failure of its own is noted in the receipt, never raised.

    ``receipt`` has all that is known at the beginning. ``describe`` finds the other facts when they are first needed, because
    lengths may take their time. ``batched``: the sampler yields the indices of whole batches.
    """

    def __init__(
        self, receipt: DataReceipt, describe: Callable[[], ReceiptFacts], *, batched: bool, streams: bool
    ) -> None:
        self._receipt = receipt
        self._describe: Callable[[], ReceiptFacts] | None = describe
        self._batched = batched
        self._streams = streams
        self._packed: list[bytes] = []
        self._rows: list[int] = []
        self._numbers: list[int] = []
        self._pending = 0
        self._last: tuple[int, bytes] | None = None
        self._packers: dict[int, Callable[..., bytes]] = {}
        self._bad: Sequence[Any] = ()
        self._last_key: int | None = None
        self._entries = np.zeros(0, np.uint64)
        self._used = 0
        self._closed = False
        self._sink: Callable[[], Path | None] | None = None
        self._owner_pid = 0
        self._unwritten: list[tuple[Words, Words]] = []
        self._headed = False
        self._due_ns, self._gap_ns = 0, _FIRST_GAP_NS

    # While it goes on

    def note(self, number: int, indices: Any) -> None:
        """A batch was handed over: its number, and what the sampler yielded for it."""
        if self._bad:
            indices = self._without_bad(number, indices)
        if type(indices) is not list:
            indices = self._listed(indices)
        rows = len(indices)
        try:
            packed = self._packers[rows](*indices)
        except Exception:  # another number of rows, or other indices than whole numbers
            packed = self._pack(indices)
        self._packed.append(packed)
        self._rows.append(rows)
        self._numbers.append(number)
        self._last = (number, packed)
        self._pending += rows
        if self._pending >= _FOLD_ROWS or len(self._numbers) >= _FOLD_BATCHES:
            self.fold()

    def note_failed(self, number: int) -> None:
        """The error of a batch was raised instead of it."""
        self._bad = ()
        receipt = self._receipt
        receipt.failed_count += 1
        if len(receipt.failed) < _KEPT:
            receipt.failed.append(number)
        self._rows.append(0)
        self._numbers.append(number)
        self._last = (number, b"")

    def note_bad(self, bad: Sequence[Any], *, replaced: bool) -> None:
        """These samples (``BadSample``) are not in the batch that is noted next."""
        self._bad = [*self._bad, *bad]
        self._receipt.replaced = self._receipt.replaced or replaced

    def note_content(self, number: int, content: int) -> None:
        """The hash of a batch of an iterable dataset. Only the first ones are wanted."""
        self._receipt.contents.append((number, content & MASK))

    @property
    def wants_contents(self) -> bool:
        """Whether the next batch's hash is wanted."""
        return self._streams and len(self._receipt.contents) < _CONTENTS

    def begin(self, receipt: DataReceipt, sink: Callable[[], Path | None] | None) -> None:
        """The iteration begins. ``sink`` is asked for the file to write to, if there is one."""
        self._receipt, self._sink = receipt, sink
        self._owner_pid = os.getpid()

    def finish(self) -> None:
        """The iteration came to its end."""
        self._receipt.finished = True

    def close(self) -> None:
        """Nothing more is handed over. Idempotent."""
        if not self._closed:
            self._closed = True
            if not sys.is_finalizing():  # __del__ may come when modules are gone
                self.fold()
                self.write()

    def forget(self) -> None:
        """A later epoch began: keep the sums alone, unless this one still goes on."""
        if self._closed:
            self._entries, self._used = np.zeros(0, np.uint64), 0
            self._receipt.sketch = sketch.empty()[:, :0]
            self._describe = None

    # Sums

    def fold(self) -> None:
        """Hash what was noted since the last time."""
        if not self._numbers:
            return
        packed, rows, numbers = self._packed, self._rows, self._numbers
        self._packed, self._rows, self._numbers, self._pending = [], [], [], 0
        try:
            keys = np.frombuffer(b"".join(packed), np.uint64)
            self._fold(keys, np.cumsum(rows, dtype=np.uint64), words(numbers))
        except Exception as error:
            self._unplug(error)
        self.write_when_due()

    def write_when_due(self) -> None:
        """Write, unless that was done a moment ago: some frameworks take a state at every step."""
        if self._sink is not None and time.monotonic_ns() >= self._due_ns:
            self.write()

    def _fold(self, keys: Words, ends: Words, numbers: Words) -> None:
        receipt = self._receipt
        if receipt.ascending and len(keys):
            self._see_order(keys.view(np.int64))
        mixed = mix(keys)
        hashes = batch_hashes(mixed, ends)
        entries = keyed(hashes, numbers)
        places = np.arange(receipt.end, receipt.end + len(numbers), dtype=np.uint64)
        digest = total(entries)
        if (places == numbers).all():
            receipt.order = (receipt.order + digest) & MASK
        else:
            receipt.order = (receipt.order + total(keyed(hashes, places))) & MASK
        receipt.digest = (receipt.digest + digest) & MASK
        receipt.samples_digest = (receipt.samples_digest + total(mixed)) & MASK
        receipt.samples += len(keys)
        receipt.batches += len(numbers)
        if len(keys):
            sketch.add(receipt.sketch, mixed)
        self._keep(numbers, entries)
        if self._sink is not None:
            self._unwritten.append((numbers, entries))

    def _see_order(self, keys: Any) -> None:
        ascending = self._last_key is None or bool(self._last_key <= keys[0])
        self._receipt.ascending = ascending and bool((keys[1:] >= keys[:-1]).all())
        self._last_key = int(keys[-1])

    def _keep(self, numbers: Words, entries: Words) -> None:
        """Add entries to those that are kept, at a grain at which there is room for them."""
        receipt = self._receipt
        last = int(numbers.max())
        while last // receipt.grain - receipt.first // receipt.grain >= MOST_ENTRIES:
            kept = coarser(self._entries[: self._used], receipt.first, receipt.grain, 2 * receipt.grain)
            self._entries, self._used = kept.copy(), len(kept)
            receipt.grain *= 2
        blocks = (numbers // np.uint64(receipt.grain)).astype(np.int64) - receipt.first // receipt.grain
        used = int(blocks.max()) + 1
        if used > len(self._entries):
            room = np.zeros(min(MOST_ENTRIES, max(64, 2 * used)), np.uint64)
            room[: self._used] = self._entries[: self._used]
            self._entries = room
        self._used = max(self._used, used)
        np.add.at(self._entries, blocks, entries)

    # Told to others

    @property
    def totals(self) -> DataReceipt:
        """The receipt without what was noted since the last fold, and without its entries. Any thread."""
        return self._receipt

    def sums(self, *, before_last: bool = False) -> ReceiptBefore:
        """Of the whole epoch up to now, with all legs before. ``before_last``: without the batch that was handed over last."""
        self.fold()
        now = self._receipt
        was = now.before or NOTHING
        last = NOTHING if self._last is None or not before_last else _sums_of(*self._last)
        return ReceiptBefore(
            now.end - last.batches,
            was.samples + now.samples - last.samples,
            (was.digest + now.digest - last.digest) & MASK,
            (was.samples_digest + now.samples_digest - last.samples_digest) & MASK,
        )

    def receipt(self) -> DataReceipt:
        """The receipt so far, as a copy. On the thread that iterates."""
        self.fold()
        self._settle()
        mine = self._receipt
        return replace(
            mine,
            entries=self._entries[: self._used].copy(),
            sketch=mine.sketch.copy(),
            bad=list(mine.bad),
            failed=list(mine.failed),
            contents=list(mine.contents),
        )

    def write(self) -> None:
        """Append what is new to the file, if there is one."""
        if self._sink is None or os.getpid() != self._owner_pid:
            return
        try:
            path = self._sink()
            if path is not None:
                self._settle()
                receipt_file.append(path, self._news())
                self._watch_end()
        except Exception as error:  # the disk may have room again at the next
            self._unplug(error)
        self._due_ns = time.monotonic_ns() + self._gap_ns
        self._gap_ns = min(2 * self._gap_ns, _GAP_NS)
        if self._closed:
            self._sink = None

    def _news(self) -> bytes:
        receipt, data = self._receipt, b""
        if not self._headed:
            data, self._headed = receipt_file.header_block(receipt), True
        if self._unwritten:
            numbers = np.concatenate([each for each, _ in self._unwritten])
            entries = np.concatenate([each for _, each in self._unwritten])
            self._unwritten.clear()
            first = int(numbers.min()) // receipt.grain
            blocks = (numbers // np.uint64(receipt.grain)).astype(np.int64) - first
            sums = np.zeros(int(blocks.max()) + 1, np.uint64)
            np.add.at(sums, blocks, entries)
            data += receipt_file.entries_block(receipt, sums, first * receipt.grain)
        return data + receipt_file.totals_block(receipt)

    def _watch_end(self) -> None:
        """Write the rest when the process ends in the middle of an epoch."""
        if not _writing:
            atexit.unregister(_write_all)
            atexit.register(_write_all)
        if self._closed:
            _writing.discard(self)
        else:
            _writing.add(self)

    def _settle(self) -> None:
        """Find the facts that were not needed until now."""
        if self._describe is not None:
            describe, self._describe = self._describe, None
            try:
                self._receipt.facts = describe()
            except Exception as error:
                self._unplug(error)

    def _pack(self, indices: list[Any]) -> bytes:
        """The indices as 64-bit numbers."""
        rows = len(indices)
        if rows not in self._packers:
            if len(self._packers) >= _MOST_PACKERS:
                self._packers.clear()
            self._packers[rows] = struct.Struct(f"{rows}q").pack
        try:
            return self._packers[rows](*indices)
        except Exception:  # of struct, or of the index's own class
            keys, whole, told = index_keys(indices)
        receipt = self._receipt
        receipt.whole, receipt.told = receipt.whole and whole, receipt.told and told
        return keys.tobytes()

    def _listed(self, indices: Any) -> list[Any]:
        """The single indices of what is no list: a tensor, an array, a tuple, or one index."""
        if self._streams:
            return []
        single = not self._batched and not isinstance(indices, tuple) and getattr(indices, "ndim", 0) != 1
        if single or (not self._batched and not all(isinstance(each, int) for each in indices)):
            return [indices]
        try:
            listed = getattr(indices, "tolist", None)
            return list(indices if listed is None else listed())
        except Exception as error:
            self._unplug(error)
            return []

    def _without_bad(self, number: int, indices: Any) -> Any:
        bad, self._bad = self._bad, ()
        receipt = self._receipt
        receipt.bad_count += len(bad)
        for each in bad[: max(0, _KEPT - len(receipt.bad))]:
            receipt.bad.append((number, str(each.index)[:80]))
        if self._streams:
            return indices
        rows = {each.row for each in bad}
        if not self._batched:
            return []
        return [index for row, index in enumerate(indices) if row not in rows]

    def _unplug(self, error: Exception) -> None:
        if self._receipt.missing is None:
            self._receipt.missing = f"{type(error).__name__}: {error}"[:200]


def _sums_of(number: int, packed: bytes) -> ReceiptBefore:
    """Of one batch."""
    mixed = mix(np.frombuffer(packed, np.uint64))
    entries = keyed(batch_hashes(mixed, words([len(mixed)])), words([number]))
    return ReceiptBefore(1, len(mixed), total(entries), total(mixed))


def _write_all() -> None:
    """The process ends."""
    for each in list(_writing):
        each.fold()
        each.write()
