"""Snapshots: what counts as a change, where datasets are looked for, and that only mark_sent moves a record."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING, Any

import pytest
from torch.utils.data import ConcatDataset, Dataset, Subset
from torch.utils.data.datapipes.map import SequenceWrapper

from stoker._pickling.attributes import MISSING, follow, spell
from stoker._runtime.dataset_sync.snapshot import LOOK_DATASETS, LOOK_ITEMS, Snapshot, holds_datasets


class Rows(Dataset[int]):
    """A dataset with whatever attributes it is given."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

        def __setattr__(self, name: str, value: Any) -> None: ...

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        return index


def changed(snapshot: Snapshot) -> dict[str, Any]:
    return {spell(change.holder.path, change.name): change.value for change in snapshot.changes()}


def tell(snapshot: Snapshot) -> dict[str, Any]:
    found = changed(snapshot)
    snapshot.mark_sent(snapshot.changes(), [])
    assert snapshot.changes() == []
    return found


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (1000, int("1000")),
        ("ab" * 9, "".join(["ab"] * 9)),
        (float("nan"), float("nan")),
        (1.5, float("1.5")),
        (b"xy", bytes([120, 121])),
        (None, None),
    ],
)
def test_scalars_are_the_same_by_value(old: Any, new: Any) -> None:
    dataset = Rows(value=old)
    snapshot = Snapshot(dataset)
    dataset.value = new
    assert changed(snapshot) == {}


@pytest.mark.parametrize(
    ("old", "new"), [(1, True), (1, 1.0), (0, False), (None, 0), ("a", b"a"), ([1], [1]), ((), [])]
)
def test_other_types_and_other_objects_are_changes(old: Any, new: Any) -> None:
    dataset = Rows(value=old)
    snapshot = Snapshot(dataset)
    dataset.value = new
    assert changed(snapshot)["dataset.value"] is new


def test_set_added_and_deleted_until_it_moves_on() -> None:
    dataset = Rows(epoch=0, gone=1, kept=[1])
    snapshot = Snapshot(dataset)
    dataset.epoch, dataset.new = 1, "x"
    del dataset.gone
    dataset.kept.append(2)
    expected = {"dataset.epoch": 1, "dataset.new": "x", "dataset.gone": MISSING}
    assert changed(snapshot) == changed(snapshot) == expected
    assert tell(snapshot) == expected
    del dataset.epoch
    dataset.epoch = 1  # now the last of its attributes
    assert changed(snapshot) == {}


def test_a_name_that_another_value_takes_over() -> None:
    value = object()
    dataset = Rows(a=value)
    snapshot = Snapshot(dataset)
    del dataset.a
    dataset.b = value
    assert tell(snapshot) == {"dataset.a": MISSING, "dataset.b": value}


def test_a_dict_that_was_replaced() -> None:
    dataset = Rows(epoch=0)
    snapshot = Snapshot(dataset)
    dataset.__dict__ = {"epoch": 7}
    assert tell(snapshot) == {"dataset.epoch": 7}
    dataset.epoch = 8
    assert tell(snapshot) == {"dataset.epoch": 8}


def test_nested_datasets() -> None:
    rows = [Rows(epoch=0) for _ in range(5)]
    dataset = Rows(
        first=Subset(rows[0], [0]),
        all=ConcatDataset([rows[1], rows[2]]),
        by={"a": (rows[3],)},
        at={1: rows[4]},
    )
    snapshot = Snapshot(dataset)
    for number, each in enumerate(rows):
        each.epoch = 10 + number
    assert tell(snapshot) == {
        "dataset.first.dataset.epoch": 10,
        "dataset.all.datasets[0].epoch": 11,
        "dataset.all.datasets[1].epoch": 12,
        "dataset.by['a'][0].epoch": 13,
        "dataset.at[1].epoch": 14,
    }


def test_cycles_and_shared_datasets_count_once() -> None:
    inner = Rows(epoch=0)
    dataset = Rows(a=inner, b=inner)
    inner.outer = dataset
    snapshot = Snapshot(dataset)
    inner.epoch = 1
    assert tell(snapshot) == {"dataset.a.epoch": 1}
    dataset.a = None
    tell(snapshot)
    inner.epoch = 2
    assert tell(snapshot) == {"dataset.b.epoch": 2}


def test_a_new_nested_dataset_is_followed_and_the_old_one_let_go() -> None:
    old, new = Rows(epoch=0), Rows(epoch=0)
    dataset = Rows(inner=old)
    snapshot = Snapshot(dataset)
    dataset.inner = new
    new.epoch = 5  # part of what travels whole
    (change,) = snapshot.changes()
    assert (change.name, change.value, holds_datasets(change)) == ("inner", new, True)
    snapshot.mark_sent([change], [])
    gone = weakref.ref(old)
    del old, change
    gc.collect()
    assert gone() is None
    new.epoch = 6
    assert tell(snapshot) == {"dataset.inner.epoch": 6}
    assert snapshot.path_of(new) == (("attribute", "inner"),)
    assert snapshot.path_of(dataset) == ()
    assert snapshot.path_of(Rows()) is None


def test_datasets_that_were_not_sent_are_not_followed() -> None:
    dataset, inner = Rows(inner=None), Rows(epoch=0)
    snapshot = Snapshot(dataset)
    dataset.inner = inner
    snapshot.mark_sent([], snapshot.changes())
    inner.epoch = 1
    assert changed(snapshot) == {}
    assert snapshot.path_of(inner) is None


def test_a_container_changed_in_place_counts_as_the_workers_have_it() -> None:
    theirs, ours = Rows(epoch=0), Rows(epoch=0)
    dataset = Rows(parts=[theirs], transform=None)
    snapshot = Snapshot(dataset)
    dataset.parts[0] = ours
    dataset.transform = object()
    tell(snapshot)
    ours.epoch = 1
    assert changed(snapshot) == {}
    theirs.epoch = 1
    assert tell(snapshot) == {"dataset.parts[0].epoch": 1}


def test_large_containers_are_not_looked_into() -> None:
    inner = Rows(epoch=0)
    for many in ([0, inner, *range(LOOK_ITEMS)], [inner] * (LOOK_DATASETS + 1)):
        snapshot = Snapshot(Rows(many=many))
        inner.epoch += 1
        assert changed(snapshot) == {}
    for many in ([inner, *range(LOOK_ITEMS - 1)], [inner] * (LOOK_ITEMS + 1)):
        snapshot = Snapshot(Rows(many=many))
        inner.epoch = 9
        assert tell(snapshot) == {"dataset.many[0].epoch": 9}
        inner.epoch = 0


class Slotted(Dataset[int]):
    __slots__ = ("epoch", "extra", "inner")
    extra: int

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.epoch = 0


def test_slots() -> None:
    inner = Rows(epoch=0)
    dataset = Slotted(inner)
    snapshot = Snapshot(dataset)
    dataset.epoch, dataset.extra, inner.epoch = 1, 2, 3
    assert tell(snapshot) == {"dataset.epoch": 1, "dataset.extra": 2, "dataset.inner.epoch": 3}
    del dataset.extra
    assert tell(snapshot) == {"dataset.extra": MISSING}


class Hooked(Rows):
    """Nothing but what is stored may be looked at."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)

    @property
    def loud(self) -> int:
        raise AssertionError("a property")

    def __eq__(self, other: object) -> bool:
        raise AssertionError("compared")

    __hash__ = None  # type: ignore[assignment]


def test_no_code_of_the_dataset_runs() -> None:
    inner = Hooked(epoch=0)
    dataset = Hooked(inner=inner, other=Hooked())
    snapshot = Snapshot(dataset)
    inner.epoch, dataset.other = 1, Hooked()
    assert list(tell(snapshot)) == ["dataset.other", "dataset.inner.epoch"]


def test_something_that_is_no_dataset_at_all() -> None:
    for dataset in (range(3), [1, 2], (1,), {"a": 1}, "abc", 5):
        assert Snapshot(dataset).changes() == []


@pytest.mark.filterwarnings("ignore:.*DataPipe.*", "ignore:.*datapipe.*")
def test_what_torch_notes_on_a_pipe_is_no_change() -> None:
    pipe: Any = SequenceWrapper([1, 2, 3])
    pipe._number_of_samples_yielded = 0
    dataset: Any = pipe.map(str)
    snapshot = Snapshot(dataset)
    pipe._number_of_samples_yielded = 3
    dataset._valid_iterator_id = 1
    assert changed(snapshot) == {}
    pipe.epoch = 1
    (name,) = tell(snapshot)
    assert name.endswith("epoch")


def test_restore_puts_back_what_changed_since() -> None:
    kept, inner = [1], Rows(epoch=0)
    dataset = Rows(epoch=0, gone=1, kept=kept, inner=inner)
    snapshot = Snapshot(dataset)
    dataset.epoch, dataset.new, dataset.kept, inner.epoch = 1, 2, [], 3
    del dataset.gone
    snapshot.restore()
    assert vars(dataset) == {"epoch": 0, "kept": kept, "inner": inner, "gone": 1}
    assert dataset.kept is kept
    assert inner.epoch == 0
    assert snapshot.changes() == []


class Lazy(list[Any]):
    """Not to be gone through by anybody but its owner."""

    def __iter__(self) -> Any:
        raise AssertionError

    def __len__(self) -> int:
        raise AssertionError

    def __getitem__(self, key: Any) -> Any:
        raise AssertionError


def test_no_code_of_a_container_runs() -> None:
    inner = Rows(epoch=0)
    held = Lazy()
    held.append(inner)
    outer = Rows(held=held)
    snapshot = Snapshot(outer)
    inner.epoch = 1
    [change] = snapshot.changes()
    assert spell(change.holder.path, change.name) == "dataset.held[0].epoch"
    assert follow(outer, change.holder.path) is inner
