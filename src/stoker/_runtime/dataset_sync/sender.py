"""Sends changed attributes of the dataset to running workers; ``receiver`` is the other side."""

from __future__ import annotations

import logging
import sys
from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

from stoker._pickling import main_module
from stoker._pickling.attributes import MISSING, spell
from stoker._pickling.value_pickle import UnfitInPlace, pack
from stoker._runtime.dataset_sync import receiver
from stoker._runtime.dataset_sync.snapshot import AttributeChange, Snapshot, holds_datasets
from stoker._runtime.scheduler.slots import SlotTable
from stoker._runtime.scheduler.types import SlotRef
from stoker._runtime.transport.base import SlotReader

if TYPE_CHECKING:
    from stoker._runtime.pool.loader_stats import LoaderStats

LIMIT_BYTES = 64 << 20
"""The most that is sent to running workers, because each makes a copy. Larger changes start new workers, which share one."""

_TRIM_BYTES = 1 << 20
_DEFINED = (type, FunctionType)
_log = logging.getLogger("stoker")

Key = tuple[int, str]
"""An attribute: the serial of its dataset, and its name."""


class _SentRevision(NamedTuple):
    """A revision that a worker may lack, and those of its attributes that no newer revision has.

    ``lasting``: paths to datasets lead through it, so it is never left out.
    """

    revision: receiver.Revision
    keys: frozenset[Key]
    lasting: bool


class RevisionSender:
    """Sends changes of the dataset to the workers of one pool. Used on the thread that iterates.

    ``word`` is the last announcement, for the status page. ``forks`` says that workers inherit the current ``__main__``.
    """

    def __init__(self, dataset: object, slots: SlotTable, arena: SlotReader, *, forks: bool) -> None:
        self.snapshot = Snapshot(dataset)
        self.word = 0
        self._slots = slots
        self._arena = arena
        self._entries: list[_SentRevision] = []
        self._number = 0
        self._written: list[tuple[SlotRef, int]] = []
        self._main = _definitions() if forks else {}

    def announce(self, stats: LoaderStats) -> bool:
        """Prepare the changes since the last call. Return False when only new workers can have them.

        Called before an iteration begins. After an interrupt, the next call announces the same changes again.
        """
        changes = self.snapshot.changes()
        if not changes:
            return True
        try:
            sent, unsent, blob = self._packed(changes, stats)
            if sent:
                self._publish(sent, blob)
        except UnfitInPlace as error:
            # As text: a handler that keeps the record would keep the traceback, and with it the values to be sent.
            _log.info(
                "%s: the workers restart, because the changed part of the dataset %s", stats.name, str(error)
            )
            return False
        self.snapshot.mark_sent(sent, unsent)
        return True

    def give_back(self) -> None:
        """Release the slots of older payloads. Called when an iteration has begun and the status page has ``word``."""
        for slot, nbytes in self._written[:-1]:
            self._slots.release(slot)
            if nbytes > _TRIM_BYTES:
                self._arena.trim(slot.index)
        del self._written[:-1]

    def _packed(
        self, changes: list[AttributeChange], stats: LoaderStats
    ) -> tuple[list[AttributeChange], list[AttributeChange], bytes]:
        """Return the changes that can be sent, those that cannot, and the bytes of the first."""
        try:
            return changes, [], self._pack(changes)
        except UnfitInPlace:
            raise
        except Exception:
            sent, unsent = [], []
        for change in changes:  # at least one of them fails
            try:
                self._pack([change])
                sent.append(change)
            except UnfitInPlace:
                raise
            except Exception as error:
                unsent.append(change)
                label = _label(change)
                stats.warn_once(
                    label,
                    f"{label} has changed to a {type(change.value).__name__} that cannot be sent to running workers "
                    f"({_short(error)}): they keep theirs. loader.refresh() starts workers with it",
                )
        try:
            return sent, unsent, self._pack(sent)
        except UnfitInPlace:
            raise
        except Exception as error:  # each could be packed alone a moment ago
            raise UnfitInPlace(f"keeps changing while it is packed ({_short(error)})") from error

    def _pack(self, changes: list[AttributeChange]) -> bytes:
        """Pack changes together, so that objects which two attributes share stay shared."""
        facts: list[receiver.Change] = []
        for holder, name, value in changes:
            present = value is not MISSING
            facts.append((holder.path, name, present, value if present else None))
        return pack(facts, self._reference, LIMIT_BYTES)

    def _reference(self, obj: object) -> Any:
        """Return a reference to an object that every worker has; None for other objects."""
        path = self.snapshot.path_of(obj)
        if path is not None:
            return receiver.DATASET, path
        if isinstance(obj, _DEFINED):
            name = obj.__qualname__
            if self._main.get(name) is obj:
                return receiver.MAIN, name
        return None

    def _publish(self, changes: list[AttributeChange], blob: bytes) -> None:
        """Write a payload with these changes to a new slot. Older revisions that are replaced as a whole are left out."""
        number = self._number + 1
        keys = frozenset((change.holder.serial, change.name) for change in changes)
        older = [entry._replace(keys=entry.keys - keys) for entry in self._entries]
        labels = tuple(map(_label, changes))
        lasting = any(map(holds_datasets, changes))
        entries = [entry for entry in older if entry.lasting or entry.keys]
        entries.append(_SentRevision(receiver.Revision(number, labels, blob), keys, lasting))
        payload = receiver.payload_of([entry.revision for entry in entries])
        if len(payload) > LIMIT_BYTES:
            raise UnfitInPlace(f"has come to more than {LIMIT_BYTES >> 20} MiB over the epochs")
        slot = self._slots.acquire()
        self._written.append((slot, len(payload)))
        try:
            self._arena.put(slot.index, payload)
        except OSError as error:
            raise UnfitInPlace(f"finds no room ({error})") from error
        self._number, self._entries = number, entries
        self.word = receiver.word_of(number, slot.index)


def _definitions() -> dict[str, Any]:
    """Return classes and functions of the training script. A forked worker has the same; by value it would get copies."""
    return {
        name: value
        for name, value in list(vars(sys.modules["__main__"]).items())
        if isinstance(value, _DEFINED) and value.__module__ in main_module.NAMES
    }


def _label(change: AttributeChange) -> str:
    return spell(change.holder.path, change.name)


def _short(error: Exception) -> str:
    text = f"{type(error).__name__}: {error}"
    return text if len(text) <= 200 else f"{text[:197]}..."
