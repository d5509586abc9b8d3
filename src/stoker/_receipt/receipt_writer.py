"""Keeps the receipt of one iteration while it goes on.

    note ──(indices, packed)──► some kB ──(every few thousand rows, or when due: fold)──► sums, sketch, entries ──► file

``note`` is on the path of every batch, so it only packs the indices and looks at the clock. Hashing is done in bulk by ``fold``.
Memory is bounded: an epoch of more than a million batches keeps one entry for every 2, 4, 8… of them.
"""

from __future__ import annotations

import atexit
import os
import struct
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic_ns
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
_LEAST_GAP_NS, _MOST_GAP_NS = 500_000_000, 60_000_000_000
_SHARE = 16
"""The time between two writes to the file is that part of the epoch so far, within these bounds. Each write is 13 kB or more."""
_STATE_GAP_NS = 5_000_000_000
"""The longest time between them where a state is taken."""

_NEVER_NS = 1 << 62

_writing: weakref.WeakSet[ReceiptWriter] = weakref.WeakSet()


class ReceiptWriter:
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
        self._folding = threading.RLock()
        self._earlier: ReceiptWriter | None = None
        """The writer of the epoch before, until its last batches are hashed too: that waits for the second batch of this one."""
        self._last: tuple[int, bytes] | None = None
        self._undo: tuple[int, tuple[int, bytes] | None, int, int, int, int] | None = None
        """What ``take_back`` puts back; None where nothing was noted."""
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
        self._began_ns = self._wrote_ns = 0
        self._due_ns = _NEVER_NS

    # While it goes on

    def note(self, number: int, indices: Any) -> None:
        """A batch was handed over: its number, and what the sampler yielded for it."""
        if self._earlier is not None and self._numbers:
            self.settle_earlier()
        if (
            self._pending >= _FOLD_ROWS
            or len(self._numbers) >= _FOLD_BATCHES
            or monotonic_ns() >= self._due_ns
        ):
            self.fold()  # not behind this batch: it may be taken back
        self._begin_note(number)
        if self._bad:
            indices = self._without_bad(number, indices)
        if type(indices) is not list:
            indices = self._listed(indices)
        rows = len(indices)
        try:
            packed = self._packers[rows](*indices)
        except Exception:  # another number of rows, or other indices than whole numbers
            packed = self._pack(indices)
        # Without calls: an interrupt comes before all of it, or behind.
        self._packed += [packed]
        self._rows += [rows]
        self._numbers += [number]
        self._last = (number, packed)
        self._pending += rows

    def note_failed(self, number: int) -> None:
        """The error of a batch was raised instead of it."""
        self._begin_note(number)
        self._bad = ()
        receipt = self._receipt
        receipt.failed_count += 1
        if len(receipt.failed) < _KEPT:
            receipt.failed.append(number)
        self._packed += [b""]
        self._rows += [0]
        self._numbers += [number]
        self._last = (number, b"")

    def _begin_note(self, number: int) -> None:
        """Remember what is there before a batch is noted."""
        receipt = self._receipt
        counts = receipt.bad_count, len(receipt.bad), receipt.failed_count, len(receipt.failed)
        self._undo = (number, self._last, *counts)

    def take_back(self, number: int) -> None:
        """This batch, which was noted last or is not wholly noted, was not handed over after all."""
        if self._undo is None or self._undo[0] != number:
            self._bad = ()
            return
        receipt = self._receipt
        _, self._last, receipt.bad_count, bad, receipt.failed_count, failed = self._undo
        del receipt.bad[bad:], receipt.failed[failed:]
        self._bad = ()
        self._undo = None
        if self._numbers and self._numbers[-1] == number:
            self._pending -= self._rows[-1]
            del self._packed[-1], self._rows[-1], self._numbers[-1]

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

    def begin(
        self,
        receipt: DataReceipt,
        sink: Callable[[], Path | None] | None,
        earlier: ReceiptWriter | None = None,
    ) -> None:
        """The iteration begins. ``sink`` is asked for the file to write to, if there is one.

        ``earlier`` kept the epoch before. Its digest goes into this receipt, and of it only the sums are kept. That takes 0.1 ms,
        so it waits until the first batch is handed over.
        """
        self._receipt, self._sink, self._earlier = receipt, sink, earlier
        self._owner_pid = os.getpid()
        if sink is not None:
            self._began_ns = self._wrote_ns = monotonic_ns()
            self._due_ns = self._began_ns + _LEAST_GAP_NS

    def settle_earlier(self) -> None:
        """Take the digest of the epoch before, and let it go. Idempotent."""
        with self._folding:
            earlier, self._earlier = self._earlier, None
            if earlier is not None:
                self._receipt.previous = earlier.sums().digest
                earlier.forget()

    def finish(self) -> None:
        """The iteration came to its end."""
        self._receipt.finished = True

    def close(self) -> None:
        """End the receipt: nothing more is handed over. Idempotent.

        Without a file it hashes the last batches later, because the next epoch waits.
        """
        if not self._closed:
            self._closed = True
            if not sys.is_finalizing() and self._path() is not None:  # __del__ may come when modules are gone
                self.fold()
                self.write()

    def forget(self) -> None:
        """A later epoch began: keep the sums alone, unless this one still goes on."""
        if self._closed:
            self.fold()
            self._entries, self._used = np.zeros(0, np.uint64), 0
            self._receipt.sketch = sketch.empty()[:, :0]
            self._describe = None

    # Sums

    def fold(self) -> None:
        """Hash what was noted since the last time. On the thread that iterates; on any, once it is closed."""
        if self._earlier is not None:
            self.settle_earlier()
        if not self._numbers and not self._unwritten:
            return
        with self._folding:
            packed, rows, numbers = self._packed, self._rows, self._numbers
            try:
                if numbers:
                    keys = np.frombuffer(b"".join(packed), np.uint64)
                    self._fold(keys, np.cumsum(rows, dtype=np.uint64), words(numbers))
            except Exception as error:
                self._unplug(error)
                self._packed, self._rows, self._numbers, self._pending = [], [], [], 0
        if not self._closed:
            self.write_when_due()

    def write_when_due(self, *, state: bool = False) -> None:
        """Write, unless that was done a moment ago. ``state``: one is taken, which some frameworks do at every step."""
        if self._sink is None:
            return
        if state:  # if it is not due yet, one of the next batches writes up to this state
            self._due_ns = min(self._due_ns, self._wrote_ns + _STATE_GAP_NS)
        if monotonic_ns() >= self._due_ns:
            self.write()

    def _fold(self, keys: Words, ends: Words, numbers: Words) -> None:
        """Add to the sums. They change at the end, in lines that call nothing: an interrupt leaves all as it was."""
        receipt = self._receipt
        ascending, last_key = receipt.ascending, self._last_key
        if ascending and len(keys):
            ascending, last_key = self._see_order(keys.view(np.int64))
        mixed = mix(keys)
        hashes = batch_hashes(mixed, ends)
        entries = keyed(hashes, numbers)
        places = np.arange(receipt.end, receipt.end + len(numbers), dtype=np.uint64)
        digest = total(entries)
        order = digest if (places == numbers).all() else total(keyed(hashes, places))
        samples_digest = total(mixed)
        sketched = receipt.sketch
        if len(keys):
            sketched = sketched.copy()
            sketch.add(sketched, mixed)
        samples, batches = receipt.samples + len(keys), receipt.batches + len(numbers)
        first, last, sums = self._make_room(numbers, entries)
        unwritten = self._unwritten if self._sink is None else [*self._unwritten, (numbers, entries)]
        used = max(self._used, last)
        self._entries[first:last] = sums
        self._used, self._unwritten = used, unwritten
        receipt.order = (receipt.order + order) & MASK
        receipt.digest = (receipt.digest + digest) & MASK
        receipt.samples_digest = (receipt.samples_digest + samples_digest) & MASK
        receipt.samples, receipt.batches, receipt.sketch = samples, batches, sketched
        receipt.ascending, self._last_key = ascending, last_key
        self._packed, self._rows, self._numbers, self._pending = [], [], [], 0

    def _see_order(self, keys: Any) -> tuple[bool, int]:
        """Whether these keys, behind all before, are in ascending order; and the last of them."""
        ascending = self._last_key is None or bool(self._last_key <= keys[0])
        return ascending and bool((keys[1:] >= keys[:-1]).all()), int(keys[-1])

    def _make_room(self, numbers: Words, entries: Words) -> tuple[int, int, Words]:
        """Have room for these entries, at a grain that bounds it. Returns from where to where they lie, and their sums."""
        receipt = self._receipt
        last = int(numbers.max())
        while last // receipt.grain - receipt.first // receipt.grain >= MOST_ENTRIES:
            kept = coarser(self._entries[: self._used], receipt.first, receipt.grain, 2 * receipt.grain)
            kept, used = kept.copy(), len(kept)
            self._entries, self._used = kept, used
            receipt.grain *= 2
        blocks = (numbers // np.uint64(receipt.grain)).astype(np.int64) - receipt.first // receipt.grain
        first, last = int(blocks.min()), int(blocks.max()) + 1
        if last > len(self._entries):
            room = np.zeros(min(MOST_ENTRIES, max(64, 2 * last)), np.uint64)
            room[: self._used] = self._entries[: self._used]
            self._entries = room
        sums = self._entries[first:last].copy()
        np.add.at(sums, blocks - first, entries)
        return first, last, sums

    # Told to others

    @property
    def totals(self) -> DataReceipt:
        """The receipt without its entries. Of an epoch under way, without what was noted since the last fold. Any thread."""
        if self._closed:
            self.fold()
        return self._receipt

    def sums(self, *, before_last: bool = False) -> ReceiptBefore:
        """Return the sums of the whole epoch up to now, with all legs before.

        ``before_last``: without the batch that was handed over last.
        """
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
            self._due_ns = _NEVER_NS
            return
        try:
            self.settle_earlier()
            path = self._path()
            if path is not None:
                self._settle()
                receipt_file.append(path, self._news())
                self._watch_end()
            else:
                self._unwritten.clear()
        except Exception as error:  # the disk may have room again at the next
            self._unplug(error)
        now_ns = self._wrote_ns = monotonic_ns()
        self._due_ns = now_ns + max(_LEAST_GAP_NS, min((now_ns - self._began_ns) // _SHARE, _MOST_GAP_NS))
        if self._closed:
            self._sink = None

    def _path(self) -> Path | None:
        return None if self._sink is None else self._sink()

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
    """Return the sums of one batch."""
    mixed = mix(np.frombuffer(packed, np.uint64))
    entries = keyed(batch_hashes(mixed, words([len(mixed)])), words([number]))
    return ReceiptBefore(1, len(mixed), total(entries), total(mixed))


def _write_all() -> None:
    """The process ends."""
    for each in list(_writing):
        each.fold()
        each.write()
