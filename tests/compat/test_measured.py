"""torch's own loader with and without the instrument: nothing that a script could notice differs."""

from __future__ import annotations

import multiprocessing
import random
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info
from torch.utils.data.datapipes.iter import IterableWrapper

from stoker._tools.profile.torch_loader import install
from tests.compat.compare import Arguments, assert_same, seed_everything, without_addresses
from tests.compat.samples import (
    Augmented,
    Bulk,
    Counting,
    CustomError,
    Keyed,
    RandomStream,
    Shaped,
    Sharded,
    Sized,
    Squares,
    keep_rows,
)

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")

_OUR_FRAME = re.compile(r'  File "[^"]*/stoker/_tools/profile/[^"]*", line \d+, in .*\n(?:    .*\n)*')


class Curious(Dataset[Any]):
    """Tells what it sees of its worker, and the types it is handed."""

    def __len__(self) -> int:
        return 9

    def __getitem__(self, index: Any) -> Any:
        info = get_worker_info()
        seen = None if info is None else (info.id, info.num_workers, info.seed, info.dataset is self)
        return (
            index,
            type(index).__name__,
            seen,
            torch.get_num_threads(),
            multiprocessing.current_process().daemon,
        )


class Failing(Dataset[Any]):
    """One row in five raises."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> Any:
        if index % 5 == 3:
            raise CustomError(index, path="x")
        return index


class Stopping(Squares):
    """Ends the epoch in the middle of a batch."""

    def __getitem__(self, index: int) -> Any:
        if index == 9:
            raise StopIteration
        return index


class Nested(Dataset[Any]):
    """Iterates a loader of its own for every row."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Any:
        return list(DataLoader(Squares(index + 1), batch_size=2))


class Delegating(Dataset[Any]):
    """Has whatever the dataset within has."""

    def __init__(self, within: Any) -> None:
        self.within = within

    def __getattr__(self, name: str) -> Any:
        if name == "within":
            raise AttributeError(name)
        return getattr(self.within, name)

    def __len__(self) -> int:
        return len(self.within)

    def __getitem__(self, index: Any) -> Any:
        return self.within[index]


class Listing(Dataset[Any]):
    """Is handed the indices themselves."""

    def __len__(self) -> int:
        return 8

    def __getitems__(self, indices: Any) -> Any:
        return [(type(indices).__name__, index) for index in indices]


class Broken(IterableDataset[Any]):
    """Raises in the middle."""

    def __iter__(self) -> Iterator[Any]:
        yield from range(5)
        raise ValueError("the stream broke")


def fails(*_: Any) -> Any:
    raise ValueError("no such thing")


def odd_batches() -> Iterator[Any]:
    yield (1, 2)
    yield np.array([5])
    yield [6]
    yield 7


def two_then_fail() -> Iterator[Any]:
    yield 1
    yield 2
    raise KeyError("sampler")


RECIPES: dict[str, Callable[[], Arguments]] = {
    "map": lambda: {"dataset": Squares(), "batch_size": 4, "shuffle": True},
    "random": lambda: {"dataset": Augmented(12), "batch_size": 5, "shuffle": True, "drop_last": True},
    "generator": lambda: {"dataset": Augmented(9), "shuffle": True, "generator": torch.Generator().manual_seed(3)},
    "single": lambda: {"dataset": Shaped("nested"), "batch_size": None},
    "rows": lambda: {"dataset": Curious(), "batch_size": 3, "collate_fn": keep_rows},
    "keys": lambda: {"dataset": Keyed(), "batch_size": None, "sampler": ["a", ("b", 2), None, 3.5]},
    "bulk": lambda: {"dataset": Bulk(), "batch_size": 4},
    "delegated bulk": lambda: {"dataset": Delegating(Listing()), "batch_size": 3, "collate_fn": keep_rows},
    "odd batches": lambda: {"dataset": Squares(), "batch_sampler": list(odd_batches())},
    "stream": lambda: {"dataset": Counting(), "batch_size": 3},
    "shares": lambda: {"dataset": Sharded(), "batch_size": 2, "drop_last": True},
    "wrong length": lambda: {"dataset": Sized(7, 4), "batch_size": 2},
    "random stream": lambda: {"dataset": RandomStream()},
    "broken stream": lambda: {"dataset": Broken(), "batch_size": 2},
    "pipe": lambda: {"dataset": IterableWrapper(range(9)).shuffle(), "batch_size": 2, "shuffle": True},
    "failing": lambda: {"dataset": Failing(), "batch_size": 2},
    "stopping": lambda: {"dataset": Stopping(), "batch_size": 4},
    "failing collate": lambda: {"dataset": Squares(), "collate_fn": fails},
    "failing sampler": lambda: {"dataset": Squares(), "sampler": two_then_fail()},
    "failing batch": lambda: {"dataset": Shaped("string"), "batch_size": 2, "collate_fn": torch.stack},
    "pinned": lambda: {"dataset": Squares(), "batch_size": 4, "pin_memory": True},
    "nested": lambda: {"dataset": Nested(), "batch_size": None, "collate_fn": keep_rows},
}  # fmt: skip

INLINE: Arguments = {"num_workers": 0}
LASTING: Arguments = {"num_workers": 2, "persistent_workers": True, "prefetch_factor": 3}
UNORDERED: Arguments = {"num_workers": 1, "in_order": False, "worker_init_fn": seed_everything, "timeout": 60}
PASSING: Arguments = {"num_workers": 2}

RAISING = (
    "odd batches",
    "broken stream",
    "failing",
    "stopping",
    "failing collate",
    "failing sampler",
    "failing batch",
)

CASES = [
    *[(recipe, INLINE) for recipe in RECIPES],
    *[(recipe, PASSING if recipe in RAISING else LASTING) for recipe in RECIPES],
    *[(recipe, UNORDERED) for recipe in ("random", "shares", "failing")],
]
EPOCHS = 2


def seen(build: Callable[[], Arguments], **extra: Any) -> tuple[list[Any], list[Any]]:
    """Some epochs, the last one left in the middle: what the script gets, and what it is told."""
    got: list[Any] = []
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        seed_everything(5)
        loader: Any = DataLoader(**build(), **extra)
        for epoch in range(EPOCHS):
            got.append(one_epoch(loader, 20 if epoch < EPOCHS - 1 else 2))
            got.append([torch.get_rng_state(), np.random.get_state(), random.getstate()])
    return got, [
        (each.category, without_addresses(str(each.message)), each.filename, each.lineno) for each in warned
    ]


def one_epoch(loader: Any, most: int) -> list[Any]:
    """What ``iter()`` makes, and so many batches; errors as they read."""
    before = len(multiprocessing.active_children())
    try:
        iterator = iter(loader)
    except Exception as error:
        return [said(error)]
    got: list[Any] = [type(iterator), len(multiprocessing.active_children()) - before]
    got.append(sorted((name, type(value)) for name, value in vars(iterator).items()))
    if loader.num_workers == 0:
        got.append(iterator._dataset_fetcher.collate_fn is loader.collate_fn)
    for _ in range(most):
        try:
            got.append(next(iterator))
        except StopIteration:
            break
        except Exception as error:
            got.append(said(error))
    if loader.num_workers and not loader.persistent_workers:
        iterator._shutdown_workers()  # torch's errors keep it alive until a garbage collection, in which it takes long
    return got


def said(error: Exception) -> Any:
    """An error as it reads; in its worker's traceback, at most one frame of the instrument is left out."""
    text, frames = _OUR_FRAME.subn("", str(error))
    assert frames <= 1
    return type(error), without_addresses(text), type(error.__cause__), vars(error)


@pytest.mark.parametrize(("recipe", "workers"), CASES)
def test_a_script_notices_nothing(recipe: str, workers: Arguments) -> None:
    expected, told = seen(RECIPES[recipe], **workers)
    install.install()
    try:
        measured, also_told = seen(RECIPES[recipe], **workers)
    finally:
        install.uninstall()
    assert_same(expected, measured)
    assert told == also_told
