"""Records the attributes of a dataset, and of datasets nested in it, as the workers last received them.

    dataset ──► .transform, .epoch, …          a tracked dataset: its path and its attributes
        └─ .datasets[0] ──► .epoch, …          another one, nested in it

Scalars and strings are compared by type and value, everything else by identity. Changes inside a container, or inside an object
that is no dataset, are not seen.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from operator import is_
from typing import Any, NamedTuple

from torch.utils.data import Dataset, IterDataPipe, MapDataPipe

from stoker._pickling.attributes import MISSING, Path, read_slot, slots_of, write
from stoker._pickling.instances import own_dict

LOOK_ITEMS = 4096
"""How many items of one attribute are searched for nested datasets. Longer containers hold samples."""

LOOK_DATASETS = 1 << 16
"""The limit for a container whose first item is a dataset, as in a ``ConcatDataset``. Comparing one takes 0.7 µs."""

_LOOK_DEPTH = 3
_BY_VALUE = frozenset({bool, int, float, complex, str, bytes, type(None)})
_BOOKKEEPING = frozenset(
    {
        "_valid_iterator_id", "_number_of_samples_yielded", "_snapshot_state", "_fast_forward_iterator",
        "_restored", "_datapipe_iter",
    }
)  # fmt: skip
"""Attributes that torch writes to a DataPipe during iteration, in any process."""

_serials = itertools.count()


class AttributeChange(NamedTuple):
    """A changed attribute; ``value`` is MISSING when it was deleted."""

    holder: TrackedDataset
    name: str
    value: Any


def holds_datasets(change: AttributeChange) -> bool:
    """Whether paths to other datasets go through the changed attribute."""
    return next(_datasets(change.value), None) is not None


class TrackedDataset:
    """The recorded attributes of one dataset. ``serial`` identifies it as long as it is part of the whole dataset.

    ``nested`` lists, by attribute, the datasets in its recorded value. When a container is changed in place later, the workers
    still have the recorded one.
    """

    __slots__ = ("_ignored", "_names", "_slots", "_values", "nested", "obj", "path", "serial")

    def __init__(self, obj: object) -> None:
        self.obj = obj
        self.path: Path = ()
        self.serial = next(_serials)
        self._slots = slots_of(type(obj))
        self._ignored = _BOOKKEEPING if isinstance(obj, IterDataPipe | MapDataPipe) else frozenset()
        self._names: list[str] = []
        self._values: list[Any] = []
        self._record()
        self.nested: dict[str, list[tuple[Path, object]]] = {}
        for name, value in self.recorded().items():
            self.note_nested(name, value)

    def recorded(self) -> dict[str, Any]:
        """Return the attributes as they were recorded."""
        return {
            name: value
            for name, value in zip(self._names, self._values, strict=True)
            if value is not MISSING and name not in self._ignored
        }

    def unchanged(self) -> bool:
        """Whether every attribute is the recorded object. Fast; this is the common case."""
        attributes = own_dict(self.obj)
        if attributes is None or self._slots:
            names, values = self.present()
            return names == self._names and all(map(is_, values, self._values))
        return list(attributes) == self._names and all(map(is_, attributes.values(), self._values))

    def changes(self) -> list[AttributeChange]:
        """Return what differs from the record. Without differences, record the present objects, for ``unchanged``."""
        old, new = self.recorded(), dict(zip(*self.present(), strict=True))
        found = []
        for name, value in new.items():
            if name not in self._ignored and not _same(old.pop(name, MISSING), value):
                found.append(AttributeChange(self, name, value))
        found += [AttributeChange(self, name, MISSING) for name in old if name not in new]
        if not found:
            self._record()
        return found

    def mark_sent(self, changes: list[AttributeChange], *, sent: bool) -> None:
        """Record these changes. Nested datasets are tracked only if the changes were ``sent``."""
        values = self.recorded()
        for _, name, value in changes:
            self.nested.pop(name, None)
            values.pop(name, None)
            if value is not MISSING:
                values[name] = value
                if sent:
                    self.note_nested(name, value)
        self._names, self._values = list(values), list(values.values())

    def note_nested(self, name: str, value: Any) -> None:
        """Note the datasets in an attribute's value."""
        if type(value) not in _BY_VALUE and (found := list(_datasets(value))):
            self.nested[name] = found

    def restore(self) -> None:
        """Set the attributes back to the record."""
        if not self.unchanged():
            for _, name, _ in self.changes():
                write(self.obj, name, self.recorded().get(name, MISSING))

    def _record(self) -> None:
        self._names, self._values = self.present()

    def present(self) -> tuple[list[str], list[Any]]:
        """Return the names and values of its attributes as they are now."""
        attributes = (own_dict(self.obj) or {}).copy()  # in one step: another thread may add attributes
        names, values = list(attributes), list(attributes.values())
        for name, slot in self._slots.items():
            value = read_slot(self.obj, slot)
            if value is not MISSING:
                names.append(name)
                values.append(value)
        return names, values


class Snapshot:
    """The dataset as the workers have it. Used on the thread that iterates; ``restore`` in a forked worker.

    It keeps recorded objects alive until ``mark_sent``: a reused address would look unchanged.
    """

    def __init__(self, dataset: object) -> None:
        self._root = TrackedDataset(dataset)
        self._holders: dict[int, TrackedDataset] = {}
        self._find_all()

    def changes(self) -> list[AttributeChange]:
        """Return all changed attributes. Calling it again returns the same."""
        return [
            change
            for holder in self._holders.values()
            if not holder.unchanged()
            for change in holder.changes()
        ]

    def mark_sent(self, changes: list[AttributeChange], unsent: list[AttributeChange]) -> None:
        """Record that the workers have ``changes``. They did not get ``unsent`` ones and keep their values."""
        for sent, each in ((True, changes), (False, unsent)):
            for holder in {change.holder for change in each}:
                holder.mark_sent([change for change in each if change.holder is holder], sent=sent)
        self._find_all()

    def path_of(self, obj: object) -> Path | None:
        """Return the path at which workers have this dataset; None if they do not have it."""
        holder = self._holders.get(id(obj))
        return None if holder is None else holder.path

    def restore(self) -> None:
        """Set the dataset back to the last ``iter()``. For a worker that is forked in the middle of an epoch."""
        for holder in self._holders.values():
            holder.restore()

    def _find_all(self) -> None:
        """Give every dataset the first path that leads to it."""
        self._root.path = ()
        found = {id(self._root.obj): self._root}
        queue = [self._root]
        for holder in queue:  # grows while it is iterated
            for name, nested in holder.nested.items():
                for steps, obj in nested:
                    if id(obj) in found:
                        continue
                    each = self._holders.get(id(obj)) or TrackedDataset(obj)
                    each.path = (*holder.path, ("attribute", name), *steps)
                    found[id(obj)] = each
                    queue.append(each)
        self._holders = found


def _same(old: Any, new: Any) -> bool:
    if old is new:
        return True
    kind = type(old)
    if kind is not type(new) or kind not in _BY_VALUE:
        return False
    return bool(old == new or (old != old and new != new))


def _datasets(value: Any) -> Iterator[tuple[Path, object]]:
    """Datasets that a value is or holds in lists, tuples and dicts of moderate size, with the steps to them."""
    left = LOOK_ITEMS
    queue: list[tuple[Path, Any]] = [((), value)]
    for steps, each in queue:  # grows while it is iterated
        kind = type(each)
        if issubclass(kind, Dataset):
            yield steps, each
        elif len(steps) < _LOOK_DEPTH and (items := _stored(each, left)):
            left -= len(items)
            queue += [
                ((*steps, ("item", key)), item)
                for key, item in items
                if type(key) in (str, int) and type(item) not in _BY_VALUE
            ]


def _stored(value: Any, most: int) -> list[tuple[Any, Any]]:
    """The items of a list, tuple or dict with their keys; none when it is something else or has more of them.

    As they are stored, whatever a subclass makes of them, and in one step: another thread may change them meanwhile.
    """
    kind: Any
    for kind in (dict, list, tuple):
        if isinstance(value, kind):
            break
    else:
        return []
    if kind.__len__(value) > most:
        items = kind.values(value) if kind is dict else kind.__iter__(value)
        first = next(iter(items), None)
        if kind.__len__(value) > LOOK_DATASETS or not isinstance(first, Dataset):
            return []
    return list(dict.copy(value).items() if kind is dict else enumerate(kind.__iter__(value)))
