"""Applies changes of the dataset in a running worker; a revision holds the changes of one ``iter()``.

    parent: changes ─► one payload in a slot of the arena ─► one word on the status page
    worker: takes a task ─► sees another word than its own ─► reads the payload ─► writes the attributes ─► makes the batch

A payload holds every revision that a worker may lack, each with its number. A worker that starts from the packed spec applies all
of them. A worker that was idle for an epoch applies those it missed. A worker that is up to date applies only the newest, so its
own changes are kept.

Payloads are never overwritten. The slot of an older payload may be reused as soon as the word has changed. A reader that finds the
word changed after reading reads again.
"""

from __future__ import annotations

import io
import os
import pickle
import struct
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from stoker._pickling.attributes import MISSING, Path, follow, write
from stoker._pickling.segment import read_at
from stoker._runtime.protocol import status_page

_LENGTH = struct.Struct("<Q")
_SLOT_BITS = 32

DATASET = "dataset"
"""A reference in a payload to a dataset that the worker has, by its path."""

MAIN = "main"
"""A reference to a class or function of ``__main__`` that a forked worker has, by its name."""


class Revision(NamedTuple):
    """The changes of one ``iter()``. ``blob`` is a pickled list of (path of the dataset, attribute, whether set, value)."""

    number: int
    labels: tuple[str, ...]
    blob: bytes


Change = tuple[Path, str, bool, Any]


def word_of(number: int, slot: int) -> int:
    """Return the word that announces a payload: one 64-bit write, so no reader sees half of it."""
    return number << _SLOT_BITS | slot


def payload_of(revisions: Sequence[Revision]) -> bytes:
    """Return the bytes for the slot."""
    body = pickle.dumps([tuple(revision) for revision in revisions], 5)
    return _LENGTH.pack(len(body)) + body


class RevisionReceiver:
    """Brings the dataset of one worker process up to date. Used by the worker's main thread.

    ``word`` is the announcement that the dataset already includes. ``error`` is the error of the last revision, which the next
    task raises. Attributes that could not be set keep their values.
    """

    def __init__(self, arena_fd: int, stride: int, control: Any, word: int) -> None:
        self.word = word
        self.error: Exception | None = None
        self._arena_fd = arena_fd
        self._stride = stride
        self._control = control

    def catch_up(self, dataset: Any) -> None:
        """Apply all announced revisions that are new. Never raises; an error goes to ``error``."""
        known = self.word >> _SLOT_BITS
        try:
            revisions = self._read()
        except Exception as error:
            self.error = error
            return
        for number, labels, blob in revisions:
            if number <= known:
                continue
            try:
                _apply(dataset, blob)
            except Exception as error:
                error.add_note(
                    f"stoker: while {', '.join(labels)}, changed in the training process, was brought to this worker"
                )
                self.error = self.error or error

    def raise_error(self) -> None:
        """Raise the error, once."""
        error, self.error = self.error, None
        if error is not None:
            raise error

    def _read(self) -> list[tuple[int, tuple[str, ...], bytes]]:
        control = self._control
        while (word := control[status_page.REVISION]) != self.word:
            start = (word & (1 << _SLOT_BITS) - 1) * self._stride
            (length,) = _LENGTH.unpack(os.pread(self._arena_fd, _LENGTH.size, start))
            if control[status_page.REVISION] != word:
                continue
            body = read_at(self._arena_fd, length, start + _LENGTH.size)
            if control[status_page.REVISION] == word:
                self.word = word
                return pickle.loads(body)  # type: ignore[no-any-return]
        return []


def _apply(dataset: Any, blob: bytes) -> None:
    changes: list[Change] = _RevisionUnpickler(io.BytesIO(blob), dataset).load()
    # All paths are valid before the first of these changes.
    holders = [follow(dataset, path) for path, _, _, _ in changes]
    for holder, (_, name, present, value) in zip(holders, changes, strict=True):
        if holder is not MISSING:  # __getstate__ may have dropped it, or the worker has replaced it
            write(holder, name, value if present else MISSING)


class _RevisionUnpickler(pickle.Unpickler):
    """Resolves references to objects that the worker already has."""

    def __init__(self, stream: io.BytesIO, dataset: Any) -> None:
        super().__init__(stream)
        self._dataset = dataset

    def persistent_load(self, pid: Any) -> Any:
        kind, key = pid
        if kind == MAIN:
            return vars(sys.modules["__main__"])[key]
        found = follow(self._dataset, key)
        if found is MISSING:
            raise pickle.UnpicklingError(f"this worker's dataset has nothing at {key}")
        return found
