"""Public subclasses reach into the loader. These are written after what timm, Ultralytics and PyG do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset

from tests.compat.compare import BOTH, StokerLoader, TorchLoader, assert_same
from tests.compat.samples import Squares

WORKERS = (0, 1, 2)
JOIN_S = 20
"""How long a worker that was told to go may take; it only bounds a failure."""


class Again:
    """Repeats a sampler for ever."""

    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield from iter(self.sampler)


def many_epochs(base: Any) -> Any:
    """timm's way: thaw the loader by its mangled flag, repeat the sampler, keep one iterator."""

    class ManyEpochs(base):
        sampler: Any
        batch_sampler: Any

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self._DataLoader__initialized = False
            if self.batch_sampler is None:
                self.sampler = Again(self.sampler)
            else:
                self.batch_sampler = Again(self.batch_sampler)
            self._DataLoader__initialized = True
            self.iterator = super().__iter__()

        def __len__(self) -> int:
            return len(self.sampler if self.batch_sampler is None else self.batch_sampler.sampler)

        def __iter__(self) -> Iterator[Any]:
            for _ in range(len(self)):
                yield next(self.iterator)

    return ManyEpochs


def infinite(base: Any) -> Any:
    """Ultralytics' way: go round __setattr__, and terminate the iterator's workers by hand at the end."""

    class Infinite(base):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            object.__setattr__(self, "batch_sampler", Again(self.batch_sampler))
            self.iterator = super().__iter__()

        def __len__(self) -> int:
            return len(self.batch_sampler.sampler)

        def __iter__(self) -> Iterator[Any]:
            for _ in range(len(self)):
                yield next(self.iterator)

        def __del__(self) -> None:
            for worker in getattr(self.iterator, "_workers", ()):
                if worker.is_alive():
                    worker.terminate()
            if hasattr(self.iterator, "_shutdown_workers"):
                self.iterator._shutdown_workers()

        def reset(self) -> None:
            self.iterator = self._get_iterator()

    return Infinite


def epochs_of(loader: Any, epochs: int = 3) -> list[Any]:
    return [list(loader) for _ in range(epochs)]


@pytest.mark.parametrize("make", [many_epochs, infinite])
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("num_workers", WORKERS)
def test_one_iterator_for_all_epochs(make: Any, num_workers: int, shuffle: bool) -> None:
    runs = []
    for base in BOTH:
        torch.manual_seed(11)
        loader = make(base)(Squares(10), batch_size=3, shuffle=shuffle, num_workers=num_workers)
        assert len(loader) == 4
        runs.append(epochs_of(loader))
    assert_same(*runs)


@pytest.mark.parametrize("num_workers", [1, 2])
def test_many_epochs_with_persistent_workers(num_workers: int) -> None:
    runs = []
    for base in BOTH:
        loader = many_epochs(base)(
            Squares(10), batch_size=3, num_workers=num_workers, persistent_workers=True
        )
        runs.append(epochs_of(loader))
    assert_same(*runs)


@pytest.mark.parametrize("num_workers", WORKERS)
def test_reset_starts_the_data_again(num_workers: int) -> None:
    for base in BOTH:
        loader = infinite(base)(Squares(10), batch_size=2, num_workers=num_workers)
        assert int(next(iter(loader))[1][0]) == 0
        assert int(next(iter(loader))[1][0]) == 4
        loader.reset()
        assert int(next(iter(loader))[1][0]) == 0


@pytest.mark.parametrize("num_workers", [1, 2])
def test_terminating_the_workers_by_hand_ends_them(num_workers: int) -> None:
    loader = infinite(StokerLoader)(Squares(10), batch_size=2, num_workers=num_workers)
    next(iter(loader))
    workers = list(loader.iterator._workers)
    assert len(workers) == num_workers
    del loader
    for worker in workers:
        worker.join(JOIN_S)
        assert not worker.is_alive()


class Graph:
    """A small graph with a variable number of nodes."""

    def __init__(self, nodes: torch.Tensor, edges: torch.Tensor) -> None:
        self.nodes = nodes
        self.edges = edges


class Graphs(Dataset[Any]):
    def __len__(self) -> int:
        return 9

    def __getitem__(self, index: int) -> Any:
        nodes = torch.full((index + 1, 2), float(index))
        return Graph(nodes, torch.arange(index).repeat(2, 1))


class Collater:
    """Joins graphs into one big one, as PyG does."""

    def __init__(self, dataset: Any, follow_batch: list[str], exclude_keys: list[str]) -> None:
        self.dataset = dataset
        self.follow_batch = follow_batch
        self.exclude_keys = exclude_keys

    def __call__(self, graphs: list[Any]) -> Any:
        counts = torch.tensor([len(graph.nodes) for graph in graphs])
        starts = counts.cumsum(0) - counts
        joined = {
            "nodes": torch.cat([graph.nodes for graph in graphs]),
            "edges": torch.cat([g.edges + start for g, start in zip(graphs, starts, strict=True)], dim=1),
            "batch": torch.arange(len(graphs)).repeat_interleave(counts),
        }
        return {key: value for key, value in joined.items() if key not in self.exclude_keys}


def graph_loader(base: Any) -> Any:
    """PyG's way: arguments of its own, and its collater in the place of the user's."""

    class GraphLoader(base):
        def __init__(
            self,
            dataset: Any,
            batch_size: int = 1,
            shuffle: bool = False,
            follow_batch: list[str] | None = None,
            exclude_keys: list[str] | None = None,
            **kwargs: Any,
        ) -> None:
            kwargs.pop("collate_fn", None)
            self.follow_batch = follow_batch
            self.exclude_keys = exclude_keys
            collater = Collater(dataset, follow_batch or [], exclude_keys or [])
            super().__init__(dataset, batch_size, shuffle, collate_fn=collater, **kwargs)

    return GraphLoader


@pytest.mark.parametrize("num_workers", WORKERS)
@pytest.mark.parametrize("shuffle", [False, True])
def test_graph_loader(num_workers: int, shuffle: bool) -> None:
    runs = []
    for base in BOTH:
        torch.manual_seed(2)
        loader = graph_loader(base)(
            Graphs(),
            batch_size=4,
            shuffle=shuffle,
            exclude_keys=["nope"],
            collate_fn=len,
            num_workers=num_workers,
        )
        runs.append(epochs_of(loader, 2))
    assert_same(*runs)


def counting(base: Any) -> Any:
    class Counted(base):
        made = 0

        def _get_iterator(self) -> Any:
            type(self).made += 1
            return super()._get_iterator()

    return Counted


@pytest.mark.parametrize("num_workers", WORKERS)
def test_get_iterator_is_the_method_to_override(num_workers: int) -> None:
    for base in BOTH:
        counted = counting(base)
        loader = counted(Squares(6), batch_size=2, num_workers=num_workers)
        assert_same(list(TorchLoader(Squares(6), batch_size=2)), list(loader))
        list(loader)
        assert counted.made == 2


def replaced(base: Any) -> Any:
    class Replaced(base):
        def _get_iterator(self) -> Any:
            return iter(["another", "engine"])

    return Replaced


@pytest.mark.parametrize("base", BOTH)
@pytest.mark.parametrize("num_workers", WORKERS)
def test_get_iterator_may_return_something_else(base: Any, num_workers: int) -> None:
    assert list(replaced(base)(Squares(6), num_workers=num_workers)) == ["another", "engine"]


@pytest.mark.parametrize("base", BOTH)
def test_an_overridden_iter_may_wrap_ours(base: Any) -> None:
    class Numbered(base):
        def __iter__(self) -> Iterator[Any]:
            yield from enumerate(super().__iter__())

    for num_workers in WORKERS:
        loader = Numbered(range(3), num_workers=num_workers)
        assert [(place, int(row)) for place, row in loader] == [(0, 0), (1, 1), (2, 2)]


@pytest.mark.parametrize("base", BOTH)
def test_a_frozen_attribute_names_the_subclass(base: Any) -> None:
    loader = infinite(base)(Squares(4))
    with pytest.raises(
        ValueError, match=r"^batch_size attribute should not be set after Infinite is initialized$"
    ):
        loader.batch_size = 2
