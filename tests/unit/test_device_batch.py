"""Where tensors are found in a batch, and what the batch with others in their places looks like."""

import functools
from array import array
from collections import UserList, deque
from collections.abc import Iterator, MutableMapping, MutableSequence, Sequence
from typing import Any

import pytest
import torch

from stoker._runtime.device.device_batch import found, rebuilt


class Slotted:
    __slots__ = ("__hidden", "number", "unset")

    def __init__(self, hidden: torch.Tensor) -> None:
        self.__hidden = hidden
        self.number = 3

    def hidden(self) -> torch.Tensor:
        return self.__hidden


class SlottedAndMore(Slotted):
    def __init__(self, hidden: torch.Tensor, own: torch.Tensor) -> None:
        super().__init__(hidden)
        self.own = own


class Lazy(Sequence[Any]):
    """Makes its items as they are asked for, and counts that."""

    def __init__(self) -> None:
        self.made = 0

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: Any) -> Any:
        if index >= 3:
            raise IndexError
        self.made += 1
        return 1000.0 + index


class Row(MutableSequence[Any]):
    """Has its items in a list of its own."""

    def __init__(self, items: Any, note: str = "") -> None:
        self.items, self.note = list(items), note

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, at: Any) -> Any:
        return self.items[at]

    def __setitem__(self, at: Any, value: Any) -> None:
        self.items[at] = value

    def __delitem__(self, at: Any) -> None:
        del self.items[at]

    def insert(self, at: int, value: Any) -> None:
        self.items.insert(at, value)


class Fields(MutableMapping[Any, Any]):
    """Has its items in a dict of its own, in a slot."""

    __slots__ = ("inside", "note")

    def __init__(self, items: Any, note: str = "") -> None:
        self.inside, self.note = dict(enumerate(items)), note

    def __len__(self) -> int:
        return len(self.inside)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.inside)

    def __getitem__(self, key: Any) -> Any:
        return self.inside[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.inside[key] = value

    def __delitem__(self, key: Any) -> None:
        del self.inside[key]


def moved(batch: Any) -> Any:
    return rebuilt(batch, lambda tensor: tensor + 1, lambda each: each)


def test_numbers_that_are_kept_packed_stay_and_are_not_counted_through() -> None:
    endless, packed, view = range(10**15), array("d", [1.0, 2.0]), memoryview(b"abc")
    batch = moved({"x": torch.zeros(1), "range": endless, "array": packed, "view": view})
    assert batch["x"].item() == 1
    assert batch["range"] is endless
    assert batch["array"] is packed
    assert batch["view"] is view


def test_a_sequence_without_tensors_stays_itself() -> None:
    lazy = Lazy()
    assert moved([lazy, torch.zeros(1)])[0] is lazy
    assert lazy.made == 3


def test_a_sequence_keeps_what_it_has_beside_its_items() -> None:
    queue: deque[Any] = deque([torch.zeros(1), 5], maxlen=7)
    new = moved(queue)
    assert (type(new), new.maxlen, new[0].item(), new[1]) == (deque, 7, 1, 5)
    assert queue[0].item() == 0
    users = UserList([torch.zeros(1)])
    users.note = "kept"  # type: ignore[attr-defined]
    assert (moved(users)[0].item(), moved(users).note) == (1, "kept")
    assert users[0].item() == 0


@pytest.mark.parametrize("kind", [Row, Fields])
def test_a_container_of_the_users_is_not_changed_in_place(kind: Any) -> None:
    """The dataset may have it still, and give it again."""
    container = kind([torch.zeros(1), 5], note="kept")
    new = moved(container)
    assert (type(new), new[0].item(), new[1], new.note) == (kind, 1, 5, "kept")
    assert (container[0].item(), container[1]) == (0, 5)


def test_tensors_in_sets_are_found() -> None:
    [one] = moved({torch.zeros(1)})
    [other] = moved(frozenset({torch.zeros(1)}))
    assert one.item() == other.item() == 1


def test_tensors_in_slots_are_found() -> None:
    plain = Slotted(torch.zeros(1))
    new = moved(plain)
    assert (type(new), new.hidden().item(), new.number, hasattr(new, "unset")) == (Slotted, 1, 3, False)
    assert plain.hidden().item() == 0
    more = moved(SlottedAndMore(torch.zeros(1), torch.zeros(1)))
    assert (more.hidden().item(), more.own.item()) == (1, 1)
    assert len(found(SlottedAndMore(torch.zeros(1), torch.zeros(1))).tensors) == 2


def test_objects_made_in_c_are_left_alone() -> None:
    call = functools.partial(print, torch.zeros(1))
    assert moved([call, slice(torch.zeros(1)), torch.zeros(1)])[0] is call
