"""Where tensors are found in a batch, and what the batch with others in their places looks like."""

import functools
from array import array
from collections import UserList, deque
from collections.abc import Sequence
from typing import Any

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
