"""Iterable datasets, with and without a way to tell where they are. Spawned workers import them from here."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import IterableDataset, get_worker_info

from tests.resume.datasets import Deaths


def share() -> tuple[int, int]:
    """This worker's number and how many there are."""
    info = get_worker_info()
    return (0, 1) if info is None else (info.id, info.num_workers)


class Plain(IterableDataset[Any]):
    """Each worker's share of a range, with noise. It cannot tell where it is."""

    def __init__(self, length: int, deaths: Deaths | None = None) -> None:
        self.length = length
        self.deaths = deaths

    def read(self, value: int) -> Any:
        if self.deaths is not None:
            self.deaths.at(value)
        return {"value": value, "torch": torch.rand(2), "python": random.random()}

    def __iter__(self) -> Iterator[Any]:
        first, step = share()
        for value in range(first, self.length, step):
            yield self.read(value)


class Generating(Plain):
    """The dataset is stateful, its iterator a generator. It counts its epochs, and each begins elsewhere."""

    def __init__(self, length: int, deaths: Deaths | None = None) -> None:
        super().__init__(length, deaths)
        self.done = self.epoch = 0

    def __iter__(self) -> Iterator[Any]:
        first, step = share()
        for value in range(first + self.done * step, self.length, step):
            self.done += 1
            yield self.read(value) | {"epoch": self.epoch}
        self.done = 0
        self.epoch += 1

    def state_dict(self) -> dict[str, int]:
        return {"done": self.done, "epoch": self.epoch}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.done, self.epoch = state["done"], state["epoch"]


class Placed(Plain):
    """Its iterator is stateful."""

    def __iter__(self) -> Iterator[Any]:
        return Place(self)


class Place:
    """Where one reading of a ``Placed`` is."""

    def __init__(self, owner: Plain) -> None:
        self.owner = owner
        self.at, self.step = share()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self.at >= self.owner.length:
            raise StopIteration
        value, self.at = self.at, self.at + self.step
        return self.owner.read(value)

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


class Both(Placed):
    """Dataset and iterator are stateful; the dataset's part is a list that it goes on changing."""

    def __init__(self, length: int, deaths: Deaths | None = None) -> None:
        super().__init__(length, deaths)
        self.seen: list[int] = []

    def read(self, value: int) -> Any:
        self.seen = [*self.seen[-2:], value]
        return super().read(value) | {"seen": sum(self.seen)}

    def state_dict(self) -> dict[str, Any]:
        return {"seen": self.seen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seen = state["seen"]


class Itself(Plain):
    """The dataset is its own iterator; what ``load_state_dict`` needs is made by ``__iter__``."""

    place: Place

    def __iter__(self) -> Iterator[Any]:
        self.place = Place(self)
        return self

    def __next__(self) -> Any:
        return next(self.place)

    def state_dict(self) -> dict[str, int]:
        return self.place.state_dict()

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.place.load_state_dict(state)


class Spans(Plain):
    """Reads spans of a range one after the other, and can divide what is left of them among any number of workers."""

    def __init__(self, length: int, deaths: Deaths | None = None) -> None:
        super().__init__(length, deaths)
        self.spans: list[list[int]] | None = None

    def __iter__(self) -> Iterator[Any]:
        spans = self.spans
        if spans is None:
            spans = self.spans = self.span(*share())
        while spans:
            span = spans[0]
            if span[0] >= span[1]:
                spans.pop(0)
                continue
            span[0] += 1
            yield self.read(span[0] - 1)
        self.spans = None

    def span(self, worker: int, num_workers: int) -> list[list[int]]:
        return [[self.length * worker // num_workers, self.length * (worker + 1) // num_workers]]

    def state_dict(self) -> dict[str, Any]:
        return {"spans": self.spans}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.spans = state["spans"]

    def __stoker_reshard__(self, states: list[Any], num_workers: int) -> list[dict[str, Any]]:
        left: list[list[int]] = []
        for worker, state in enumerate(states):
            left += self.span(worker, len(states)) if state is None else state.get("spans", [])
        return [{"spans": left[worker::num_workers]} for worker in range(num_workers)]


KINDS: dict[str, type[Plain]] = {
    "plain": Plain,
    "generating": Generating,
    "placed": Placed,
    "both": Both,
    "itself": Itself,
    "spans": Spans,
}
SIMPLE = ("plain", "generating", "placed", "both", "itself")
"""Those that cannot be divided anew."""
