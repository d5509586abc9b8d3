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
"""How many items of the containers in one attribute are looked at for nested datasets. Longer containers hold samples."""

LOOK_DATASETS = 1 << 16
"""The same for a container that begins with a dataset, as that of a ``ConcatDataset``. To compare one takes 0.7 µs."""

_LOOK_DEPTH = 3
_BY_VALUE = frozenset({bool, int, float, complex, str, bytes, type(None)})
_BOOKKEEPING = frozenset(
    {
        "_valid_iterator_id", "_number_of_samples_yielded", "_snapshot_state", "_fast_forward_iterator",
        "_restored", "_datapipe_iter",
    }
)  # fmt: skip
"""What torch writes to a DataPipe while it is iterated, in whatever process."""

_serials = itertools.count()


class AttributeChange(NamedTuple):
    """An attribute that is not what it was; ``value`` is MISSING when it was deleted."""

    holder: TrackedDataset
    name: str
    value: Any


def holds_datasets(change: AttributeChange) -> bool:
    """Whether paths to other datasets go through the changed attribute."""
    return next(_datasets(change.value), None) is not None


class TrackedDataset:
    """One dataset. ``serial`` names it for as long as it is part of the dataset.

    ``nested`` has, by attribute, the datasets found in its value when it was recorded. A container that has been changed in place
    since still counts as the workers have it.
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
        """The attributes as they were."""
        return {
            name: value
            for name, value in zip(self._names, self._values, strict=True)
            if value is not MISSING and name not in self._ignored
        }

    def unchanged(self) -> bool:
        """Whether nothing at all has happened: no attribute is another object. Fast, and the rule."""
        attributes = own_dict(self.obj)
        if attributes is None or self._slots:
            names, values = self._present()
            return names == self._names and all(map(is_, values, self._values))
        return list(attributes) == self._names and all(map(is_, attributes.values(), self._values))

    def changes(self) -> list[AttributeChange]:
        """What differs from the record. If nothing does, equal values that are other objects are recorded for ``unchanged``."""
        old, new = self.recorded(), dict(zip(*self._present(), strict=True))
        found = []
        for name, value in new.items():
            if name not in self._ignored and not _same(old.pop(name, MISSING), value):
                found.append(AttributeChange(self, name, value))
        found += [AttributeChange(self, name, MISSING) for name in old if name not in new]
        if not found:
            self._record()
        return found

    def mark_sent(self, changes: list[AttributeChange], *, sent: bool) -> None:
        """Record these changes. Datasets in values that workers were not ``sent`` of are none of theirs."""
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
        """Put the attributes back to what they were."""
        if not self.unchanged():
            for _, name, _ in self.changes():
                write(self.obj, name, self.recorded().get(name, MISSING))

    def _record(self) -> None:
        self._names, self._values = self._present()

    def _present(self) -> tuple[list[str], list[Any]]:
        attributes = (own_dict(self.obj) or {}).copy()  # in one step: another thread may add some meanwhile
        names, values = list(attributes), list(attributes.values())
        for name, slot in self._slots.items():
            value = read_slot(self.obj, slot)
            if value is not MISSING:
                names.append(name)
                values.append(value)
        return names, values


class Snapshot:
    """A dataset as the workers know it. Used on the thread that iterates; ``restore`` in a forked worker.

    It keeps what it has recorded alive until ``mark_sent``: an address that is used again would look unchanged.
    """

    def __init__(self, dataset: object) -> None:
        self._root = TrackedDataset(dataset)
        self._holders: dict[int, TrackedDataset] = {}
        self._find_all()

    def changes(self) -> list[AttributeChange]:
        """All attributes that changed since. Nothing moves: asked again, it answers the same."""
        return [
            change
            for holder in self._holders.values()
            if not holder.unchanged()
            for change in holder.changes()
        ]

    def mark_sent(self, changes: list[AttributeChange], unsent: list[AttributeChange]) -> None:
        """The workers know of ``changes`` now. They were not sent of ``unsent`` ones and keep what they have."""
        for sent, each in ((True, changes), (False, unsent)):
            for holder in {change.holder for change in each}:
                holder.mark_sent([change for change in each if change.holder is holder], sent=sent)
        self._find_all()

    def path_of(self, obj: object) -> Path | None:
        """Where workers have this dataset, None when they have not."""
        holder = self._holders.get(id(obj))
        return None if holder is None else holder.path

    def restore(self) -> None:
        """Make the dataset what it was at the last ``iter()``. For a worker forked in the middle of an epoch."""
        for holder in self._holders.values():
            holder.restore()

    def _find_all(self) -> None:
        """Give every dataset the path by which it is found first."""
        self._root.path = ()
        found = {id(self._root.obj): self._root}
        queue = [self._root]
        for holder in queue:  # it grows
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
    for steps, each in queue:  # it grows
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
