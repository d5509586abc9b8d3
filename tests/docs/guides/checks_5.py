"""Checks 5xx: order and randomness."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch.utils.data import Dataset, IterableDataset, Subset, get_worker_info

from tests.docs.guides.guide import Names, Steps, few, guide, in_workers, raises


@guide("docs/checks/STK501.md")
def repeated_randomness(names: Names) -> Steps:
    names["augment"] = lambda image, by: image + by
    yield
    names["dataset"] = dataset = names["Pictures"]([0.0] * 4)
    dataset.__class__.__len__ = lambda self: 4
    of_one, of_other = in_workers(dataset, batch_size=2)
    assert of_one.equal(of_other), "two workers draw the same numbers"
    yield
    of_one, of_other = in_workers(dataset, batch_size=2, worker_init_fn=names["seed_worker"])
    assert not of_one.equal(of_other)


@guide("docs/checks/STK502.md")
def unsharded_stream(names: Names) -> Steps:
    Path("lines").write_text("1\n2\n3\n")
    names["parse"] = int
    yield
    lines = names["Lines"]()
    lines.path = "lines"
    assert sorted(in_workers(lines, batch_size=None)) == [1, 1, 2, 2, 3, 3]
    yield
    names["Lines"].__iter__ = names["__iter__"]
    assert sorted(in_workers(lines, batch_size=None)) == [1, 2, 3]


class Stream(IterableDataset[int]):
    """400 items, of which every worker takes its share."""

    def __iter__(self) -> Iterator[int]:
        worker = get_worker_info()
        assert worker is not None
        return itertools.islice(range(400), worker.id, None, worker.num_workers)


@guide("docs/checks/STK503.md")
def drop_last_loss(names: Names) -> Steps:
    names["stream"] = Stream()
    yield
    assert in_workers(names["stream"], 8, batch_size=64, drop_last=True) == []


class Epochs(Dataset[int]):
    """Its samples are the epoch that it was told."""

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        return self.epoch


@guide("docs/checks/STK504.md")
def stale_workers(names: Names) -> Steps:
    names.update(dataset=Epochs(), range=few)
    yield
    assert (names["dataset"].epoch, names["batch"].tolist()) == (1, [0])


class Orders(list[Any]):
    """Notes what it is asked for."""

    def __init__(self) -> None:
        super().__init__(range(8))
        self.asked: list[int] = []

    def __getitem__(self, index: Any) -> Any:
        self.asked.append(index)
        return index


@guide("docs/checks/STK505.md")
def set_epoch(names: Names) -> Steps:
    from torch.utils.data import DataLoader, DistributedSampler

    orders = Orders()
    names.update(
        dataset=orders,
        range=few,
        DistributedSampler=partial(DistributedSampler, num_replicas=1, rank=0),
        DataLoader=lambda dataset, num_workers, **given: DataLoader(dataset, **given),
    )
    yield
    assert orders.asked[:8] == orders.asked[8:]
    orders.asked.clear()
    yield
    assert orders.asked[:8] != orders.asked[8:]


@guide("docs/checks/STK506.md")
def unequal_ranks(names: Names) -> Steps:
    yield
    stream = SimpleNamespace(items=lambda: range(103))
    names["world_size"] = 2
    counts = []
    for names["rank"] in range(2):
        counts.append(len(list(names["__iter__"](stream))))
    assert counts == [52, 51]


class Augmented(Dataset[torch.Tensor]):
    """Random numbers."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.rand(())


@guide("docs/checks/STK507.md")
def worker_dependent_randomness(names: Names) -> Steps:
    names["dataset"] = Augmented()
    yield
    seen = []
    for workers in (2, 4):
        torch.manual_seed(0)
        seen.append(torch.stack(in_workers(names["dataset"], workers, batch_size=1)))
    assert not seen[0].equal(seen[1])


@guide("docs/checks/STK508.md")
def shared_iterator(names: Names) -> Steps:
    names["dataset"] = range(8)
    yield
    assert (names["a"].item(), names["b"].item()) == (6, 7)


@guide("docs/checks/STK509.md")
def broken_generator(names: Names) -> Steps:
    Path("lines").write_text('{"a": 1}\nbad\n{"a": 2}\n')
    dataset = SimpleNamespace(path="lines", skipped=0)
    yield
    stream = names["__iter__"](dataset)
    assert next(stream) == {"a": 1}
    with raises(ValueError):
        next(stream)
    assert list(stream) == []
    yield
    assert list(names["__iter__"](dataset)) == [{"a": 1}, {"a": 2}]
    assert dataset.skipped == 1


@guide("docs/checks/STK510.md")
def wrong_length(names: Names) -> Steps:
    yield
    assert names["__len__"](SimpleNamespace(files=["a", "b"])) == 2


@guide("docs/checks/STK513.md")
def frozen_randomness(names: Names) -> Steps:
    drawn = itertools.count()
    names.update(decode=lambda path: path, augment=lambda image: f"{image}{next(drawn)}")
    yield
    pictures = names["Pictures"]()
    pictures.paths = ["a", "b"]
    assert [pictures[0], pictures[0]] == ["a0", "a0"]
    yield
    pictures = names["Pictures"](["a", "b"])
    assert [pictures[0], pictures[0]] == ["a1", "a2"]


@guide("docs/checks/STK512.md")
def idle_workers(names: Names) -> Steps:
    class Shards(IterableDataset[int]):
        num_shards = 2

        def __iter__(self) -> Iterator[int]:
            return iter(range(2))

    names.update(
        dataset=SimpleNamespace(to_iterable_dataset=lambda num_shards: Shards()),
        workers=16,
        DataLoader=lambda dataset, num_workers: names.update(made=num_workers),
    )
    yield
    assert names["made"] == 2


@guide("docs/checks/STK511.md")
def bad_sampler(names: Names) -> Steps:
    names.update(weights=[1.0] * 100, train_subset=Subset(range(100), [0, 1, 2]))  # type: ignore[arg-type]
    with raises(IndexError, "list index out of range"):
        yield
