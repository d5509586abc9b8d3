"""Checks 6xx and 7xx: memory and speed."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import torch
from torch.utils.data import Dataset

from tests.docs.guides.guide import Names, Steps, few, guide, raises


def over(names: Names, *called: str) -> Steps:
    """The page's dataset has these names; its loaders are made and their arguments accepted."""
    for each in called:
        names[each] = names["dataset"]
    yield


@guide("docs/checks/STK601.md")
def copy_on_write(names: Names) -> Steps:
    yield
    pictures = names["Pictures"]([SimpleNamespace(path="a", label=1)])
    assert pictures.rows == [("a", 1)]


@guide("docs/checks/STK602.md")
def persistent_pair(names: Names) -> Steps:
    return over(names, "train_set", "valid_set")


@guide("docs/checks/STK604.md")
def window_bytes(names: Names) -> Steps:
    return over(names, "videos")


@guide("docs/checks/STK605.md")
def big_permutation(names: Names) -> Steps:
    names["clicks"] = range(10)
    yield
    names["stoker"].ElasticDistributedSampler(range(10), num_replicas=1, rank=0)
    yield
    assert len(list(names["loader"].sampler)) == 10


@guide("docs/checks/STK607.md")
def worker_cache(names: Names) -> Steps:
    made = itertools.count(1)
    names["decode"] = lambda path: next(made)
    yield
    scans = names["Scans"](["a", "b"])
    assert [scans[1], scans[1], len(scans.seen)] == [1, 1, 1]
    decoded: list[str] = []

    def decode(path: str) -> int:
        decoded.append(path)
        return len(path)

    names.update(paths=["a", "b"], decode=decode)
    yield
    scans = names["scans"]
    decoded.clear()
    assert [scans[1], scans[1], scans[1]] == [1, 1, 1]
    assert len(decoded) <= 1
    names["decode"] = lambda path: next(made)
    yield
    scans = names["Scans"](["a", "b"])
    assert [scans[0], scans[1], scans[1]] == [2, 3, 3]


@guide("docs/checks/STK608.md")
def nested_caches(names: Names) -> Steps:
    class Pictures(Dataset[int]):
        def __init__(self) -> None:
            self.loader: Any = abs

        def __len__(self) -> int:
            return 2

        def __getitem__(self, index: int) -> int:
            return int(self.loader(index))

    for _ in range(3):
        names["dataset"] = Pictures()
        yield
        assert names["dataset"][1] == 1


@guide("docs/checks/STK701.md")
def no_workers_needed(names: Names) -> Steps:
    names.update(x=torch.zeros(4, 2), y=torch.zeros(4))
    yield


@guide("docs/checks/STK703.md")
def needless_pinning(names: Names) -> Steps:
    yield
    if not torch.accelerator.is_available():
        with raises(UserWarning, "'pin_memory' argument is set as true but no accelerator is found"):
            next(iter(names["DataLoader"](names["dataset"], pin_memory=True)))


@guide("docs/checks/STK704.md")
def pin_thread(names: Names) -> Steps:
    return over(names, "float_images")


@guide("docs/checks/STK705.md")
def costly_samples(names: Names) -> Steps:
    import numpy as np
    from PIL import Image

    Image.new("L", (60, 40)).save("0.png")
    names.update(Image=Image, to_tensor=lambda image: torch.from_numpy(np.asarray(image).copy()))
    yield
    dataset = SimpleNamespace(paths=["0.png"], normalise=lambda image: image / 255)
    assert names["__getitem__"](dataset, 0).shape == (256, 256, 3)


@guide("docs/checks/STK706.md")
def cold_epochs(names: Names) -> Steps:
    """Under fork: spawned workers would take seconds, which is what the page is about."""
    kind: Any = names["DataLoader"]
    names.update(
        range=few, DataLoader=lambda dataset, num_workers, **_: kind(dataset, num_workers=num_workers)
    )
    yield
    assert names["loader"].persistent_workers is False


@guide("docs/checks/STK707.md")
def stragglers(names: Names) -> Steps:
    return over(names, "scans")
