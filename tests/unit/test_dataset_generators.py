"""Generators stored on a dataset: where they are found, and that each is seeded, wherever it lies by then."""

from __future__ import annotations

import logging
import pickle
import random
import threading
import weakref
from collections import OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, Dataset, Subset

from stoker._pickling.attributes import follow
from stoker._runtime.worker.rng import dataset_generators, seeding


class Bag(Dataset[Any]):
    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def __init__(self, **held: Any) -> None:
        self.__dict__.update(held)

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> Any:
        raise NotImplementedError


class Plain:
    """A transform, say."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def __init__(self, **held: Any) -> None:
        self.__dict__.update(held)


class Slotted:
    __slots__ = ("generator", "unset")

    def __init__(self) -> None:
        self.generator = np.random.default_rng()


def paths(dataset: Any) -> list[str]:
    found = []
    for path, _ in dataset_generators.find(dataset):
        assert follow(dataset, path) is not None
        found.append("".join(f".{key}" if kind == "attribute" else f"[{key!r}]" for kind, key in path))
    return found


def test_all_kinds_are_found_and_nothing_else() -> None:
    dataset = Bag(
        numpy=np.random.default_rng(),
        legacy=np.random.RandomState(),
        python=random.Random(),
        torch=torch.Generator(),
        entropy=random.SystemRandom(),
        module=np.random,
        function=np.random.default_rng,
        data=torch.zeros(3),
        words=["a", "b"],
    )
    assert paths(dataset) == [".numpy", ".legacy", ".python", ".torch"]


def test_they_are_found_in_transforms_nested_datasets_containers_and_slots() -> None:
    noise = Plain(generator=np.random.default_rng())
    module = torch.nn.Sequential(torch.nn.Identity())
    module[0].generator = torch.Generator()  # type: ignore[assignment]
    dataset = Subset(
        Bag(
            compose=Plain(transforms=[Plain(), noise, Slotted()]),
            by_name={"train": (random.Random(),), 3: Plain(a=noise), (1, 2): random.Random()},
            module=module,
        ),
        [0],
    )
    assert paths(dataset) == [
        ".dataset.by_name['train'][0]",
        ".dataset.compose.transforms[1].generator",
        ".dataset.compose.transforms[2].generator",
        ".dataset.module._modules['0'].generator",
    ]


def test_large_containers_are_not_looked_into_unless_they_hold_datasets() -> None:
    many = [Plain(generator=random.Random()) for _ in range(100)]
    assert paths(Bag(samples=many, by_key=dict(enumerate(many)))) == []
    parts: Any = ConcatDataset([Bag(generator=random.Random()) for _ in range(100)])
    assert len(paths(parts)) == 100


def test_the_walk_ends() -> None:
    ring = Plain(generator=random.Random())
    ring.__dict__["ring"] = ring
    wide = [[Plain(of=number) for number in range(60)] for _ in range(60)]
    dataset = Bag(ring=ring, wide=wide, late=Plain(generator=random.Random()))
    assert paths(dataset) == [".ring.generator", ".late.generator"]  # the nearest come first
    deep: Any = Plain(generator=random.Random())
    for _ in range(30):
        deep = Plain(deep=deep)
    assert paths(Bag(deep=deep)) == []


def test_no_code_of_the_user_runs() -> None:
    class Touchy:
        def __init__(self) -> None:
            self.generator = random.Random()

        def __getattribute__(self, name: str) -> Any:
            raise AssertionError(name)

        def __iter__(self) -> Any:
            raise AssertionError

    class Proxy:
        @property  # type: ignore[misc]
        def __class__(self) -> Any:
            raise AssertionError

        @property
        def __dict__(self) -> Any:  # type: ignore[override]
            raise AssertionError

    assert paths(Bag(touchy=Touchy())) == [".touchy.generator"]
    assert paths(Bag(proxies=[Proxy() for _ in range(100)], proxy=Proxy())) == []


def test_little_is_looked_at_in_a_labyrinth(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr("stoker._runtime.worker.rng.generators.is_generator", asked.append)
    table = Plain(**{f"column{number}": [] for number in range(5000)})
    dataset_generators.find(
        Bag(table=table, maze=[[[[] for _ in range(60)] for _ in range(60)] for _ in range(60)])
    )
    assert 1000 < len(asked) < 11_000


Pair = namedtuple("Pair", ["first", "second"])


@dataclass(frozen=True, slots=True)
class Frozen:
    generator: random.Random


def test_things_of_other_kinds_are_passed_through_or_by() -> None:
    kept = Plain(generator=random.Random())
    dataset = Bag(
        pair=Pair(random.Random(), 2),
        frozen=Frozen(random.Random()),
        ordered=OrderedDict(a=random.Random()),
        default=defaultdict(list, {"x": random.Random()}),
        space=SimpleNamespace(generator=random.Random()),
        mock=MagicMock(),
        proxy=weakref.proxy(kept),
        lock=threading.Lock(),
        logger=logging.getLogger("stoker"),
        lazy=(number for number in range(3)),
        partial=partial(print, random.Random()),
        queue=deque([random.Random()]),
    )
    assert paths(dataset) == [
        ".pair[0]", ".frozen.generator", ".ordered['a']", ".default['x']", ".space.generator"
    ]  # fmt: skip
    assert seeded(dataset, 5).keep()() is None
    assert dict(dataset.default).keys() == {"x"}


def test_the_numbers_stay_what_they_are() -> None:
    """Pinned: another value would change every user's random numbers between two versions."""
    [found] = dataset_generators.find(Bag(transform=Plain(each=[random.Random()])))
    assert found.number == 17381788267629079577


def seeded(dataset: Any, key: int, found: Any = None) -> dataset_generators.DatasetGenerators:
    here = dataset_generators.DatasetGenerators(
        dataset, dataset_generators.find(dataset) if found is None else found
    )
    here.reseed(key)
    return here


def test_each_has_a_stream_of_its_own_that_depends_on_the_key_and_its_path() -> None:
    def two() -> Any:
        return Bag(left=np.random.default_rng(), right=np.random.default_rng())

    one, other, more = two(), two(), Bag(new=random.Random(), **vars(two()))
    for each in (one, other, more):
        seeded(each, 5)
    left, right = one.left.random(), one.right.random()
    assert left != right
    assert (
        (other.left.random(), other.right.random())
        == (more.left.random(), more.right.random())
        == (left, right)
    )
    seeded(one, 6)
    assert one.left.random() != left


def test_one_in_two_places_is_seeded_once() -> None:
    shared = random.Random()
    dataset = Bag(first=shared, second=Plain(generator=shared))
    alone = Bag(first=random.Random())
    seeded(dataset, 5)
    seeded(alone, 5)
    assert shared.random() == alone.first.random()


def test_two_over_one_source_are_seeded_once() -> None:
    bits = np.random.PCG64()
    dataset = Bag(first=np.random.Generator(bits), second=np.random.Generator(bits))
    alone = Bag(first=np.random.default_rng())
    seeded(dataset, 5)
    seeded(alone, 5)
    assert dataset.second.random() == alone.first.random()


@pytest.mark.parametrize("where", ["generator", "transform", "item", "slot"])
def test_what_was_replaced_is_seen(where: str) -> None:
    dataset: Any = Bag(
        generator=random.Random(), transform=Plain(each=[Plain(generator=random.Random())]), slotted=Slotted()
    )
    here = seeded(dataset, 5)
    expected = [
        dataset.generator.random(),
        dataset.transform.each[0].generator.random(),
        dataset.slotted.generator.random(),
    ]
    if where == "generator":
        dataset.generator = random.Random()
    elif where == "transform":
        dataset.transform = Plain(each=[Plain(generator=random.Random())])
    elif where == "item":
        dataset.transform.each[0] = Plain(generator=random.Random())
    else:
        dataset.slotted.generator = np.random.default_rng()
    here.reseed(5)
    assert [
        dataset.generator.random(), dataset.transform.each[0].generator.random(), dataset.slotted.generator.random()
    ] == expected  # fmt: skip


def test_what_was_replaced_is_kept_too() -> None:
    dataset: Any = Bag(generator=random.Random())
    here = seeded(dataset, 5)
    dataset.generator = random.Random(3)  # the trainer may hold it, too
    put_back = here.keep()
    here.reseed(5)
    put_back()
    assert dataset.generator.random() == random.Random(3).random()


def test_what_has_gone_is_passed_over() -> None:
    dataset: Any = Bag(generator=random.Random(), each=[random.Random()], slotted=Slotted())
    here = seeded(dataset, 5)
    expected = dataset.generator.random()
    del dataset.slotted.generator
    dataset.each.clear()
    for _ in range(2):
        here.reseed(5)
        assert dataset.generator.random() == expected
    dataset.generator = None
    here.reseed(5)
    del dataset.generator
    here.reseed(5)
    assert here.keep()() is None


def test_paths_hold_in_a_copy() -> None:
    dataset = Bag(each=[Plain(generator=np.random.default_rng())])
    found = dataset_generators.find(dataset)
    copy = pickle.loads(pickle.dumps(dataset))
    seeded(dataset, 5)
    seeded(copy, 5, pickle.loads(pickle.dumps(found)))
    assert copy.each[0].generator.random() == dataset.each[0].generator.random()


def test_a_copy_of_a_global_one_is_seeded_like_it() -> None:
    """``sklearn.utils.check_random_state(None)`` gives NumPy's own, for one."""
    dataset = Bag(generator=np.random.mtrand._rand)
    found = dataset_generators.find(dataset)
    copy = pickle.loads(pickle.dumps(dataset))
    with seeding.generators_kept():
        seeding.seed_all(5)
        for each in (dataset, copy):
            seeded(each, 5, found)
        assert copy.generator.rand() == np.random.rand()


def test_what_was_kept_comes_back() -> None:
    dataset = Bag(numpy=np.random.default_rng(1), python=random.Random(1))
    here = dataset_generators.DatasetGenerators(dataset, dataset_generators.find(dataset))
    put_back = here.keep()
    expected = dataset.numpy.random(), dataset.python.random()
    here.reseed(9)
    put_back()
    assert (dataset.numpy.random(), dataset.python.random()) == expected


def test_threads_are_warned_once(caplog: pytest.LogCaptureFixture) -> None:
    warned: set[str] = set()
    found = dataset_generators.find(Bag(each=[Plain(generator=random.Random())]))
    with caplog.at_level(logging.WARNING, "stoker"):
        dataset_generators.warn_once((), warned)
        assert not caplog.messages
        dataset_generators.warn_once(found, warned)
        dataset_generators.warn_once(found, warned)
    [message] = caplog.messages
    assert message.startswith("dataset.each[0].generator is a random generator that worker threads share")
    assert "stoker.generator()" in message
