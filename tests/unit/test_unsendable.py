"""What cannot travel is named by its path and type."""

from __future__ import annotations

import dataclasses
import threading
from collections import deque
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from stoker.errors import UnsendableError
from stoker.testing import heap_codec


class Pair(NamedTuple):
    x: Any
    y: Any


@dataclasses.dataclass
class Sample:
    reader: Any


class Slotted:
    __slots__ = ("handle", "unset")

    def __init__(self, handle: Any) -> None:
        self.handle = handle


class Custom:
    def __init__(self, state: Any) -> None:
        self.state = state


class Refuses:
    def __reduce__(self) -> Any:
        raise ValueError("not today")


def generator() -> Any:
    yield 1


@pytest.mark.parametrize(
    ("wrap", "path"),
    [
        (lambda bad: bad, "batch"),
        (lambda bad: [1, bad], "batch[1]"),
        (lambda bad: {"meta": [0, 1, 2, bad]}, "batch['meta'][3]"),
        (lambda bad: (torch.ones(2), Pair(1, bad)), "batch[1].y"),
        (lambda bad: {"s": Sample(reader=bad)}, "batch['s'].reader"),
        (lambda bad: [Slotted(bad)], "batch[0].handle"),
        (lambda bad: [Custom({"a": bad})], "batch[0].state['a']"),
        (lambda bad: deque([bad]), "batch[0]"),
        (lambda bad: np.array([None, bad], dtype=object), "batch.flat[1]"),
        (lambda bad: {7: {(1, 2): bad}}, "batch[7][(1, 2)]"),
        (lambda bad: {bad: 1}, "batch.keys() <generator"),
    ],
)
def test_path_and_type_of_the_culprit(wrap: Any, path: str) -> None:
    with pytest.raises(UnsendableError) as caught:
        heap_codec.dumps(wrap(generator()))
    assert str(caught.value).startswith(path)
    assert ": generator (" in str(caught.value)
    assert caught.value.__cause__ is not None


def test_lock_and_own_refusal() -> None:
    with pytest.raises(UnsendableError, match=r"^batch\['lock'\]: lock \(cannot pickle"):
        heap_codec.dumps({"fine": torch.ones(2), "lock": threading.Lock()})
    with pytest.raises(UnsendableError, match=r"^batch\[1\]: Refuses \(not today\)"):
        heap_codec.dumps([torch.ones(1), Refuses()])


def test_attribute_of_a_tensor() -> None:
    tensor: Any = torch.ones(2)
    tensor.source = generator()
    with pytest.raises(UnsendableError, match=r"^batch\[0\]\.source: generator"):
        heap_codec.dumps([tensor])


def test_cycle_around_the_culprit() -> None:
    batch: dict[str, Any] = {"inner": []}
    batch["inner"] += [batch, {"bad": generator()}]
    with pytest.raises(UnsendableError, match=r"^batch\['inner'\]\[1\]\['bad'\]: generator"):
        heap_codec.dumps(batch)


def test_nesting_beyond_the_stack() -> None:
    batch: list[Any] = []
    for _ in range(100_000):
        batch = [batch]
    with pytest.raises(UnsendableError, match="recursion"):
        heap_codec.dumps(batch)


def test_a_tensor_of_another_device_is_refused() -> None:
    class Elsewhere(torch.Tensor):
        @property
        def device(self) -> torch.device:  # type: ignore[override]
            return torch.device("cuda", 0)

    with pytest.raises(UnsendableError, match=r"^batch\['x'\]: .*it lies on cuda:0; workers must return CPU"):
        heap_codec.dumps({"x": torch.ones(2).as_subclass(Elsewhere)})
