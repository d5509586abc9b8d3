"""torch's loaders, and subclasses of them, under ``stoker run``: stoker's engine behind names and overrides that stay.

The swap is for a whole process and for good, so each test runs in a fork.
"""

from __future__ import annotations

import copy
import functools
import inspect
import logging
import multiprocessing
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.utils.data
from torch.utils.data import DataLoader as Known

import stoker
from stoker._tools.profile import swap
from tests.compat.compare import assert_same
from tests.compat.samples import Squares
from tests.compat.test_subclasses import (
    Graphs,
    counting,
    epochs_of,
    graph_loader,
    infinite,
    many_epochs,
    replaced,
)

BOUND_S = 60
"""How long a fork may take; it only bounds a failure."""


def in_a_swapped_process(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test in a fork in which loaders are swapped. What it prints shows up with the failure."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        def body() -> None:
            swap.install()
            test(*args, **kwargs)

        child = multiprocessing.get_context("fork").Process(target=body)
        child.start()
        child.join(BOUND_S)
        code = child.exitcode
        if code is None:
            child.kill()
            child.join()
        child.close()
        assert code == 0
        assert not swap.installed()

    return run


class Named(Known[Any]):
    """A subclass that can be found by its name."""

    def __init__(self, *args: Any, extra: int = 1, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.extra = extra

    def __iter__(self) -> Any:
        for batch in super().__iter__():
            yield batch + self.extra


@in_a_swapped_process
def test_however_the_class_was_imported() -> None:
    for cls in (Known, torch.utils.data.DataLoader, torch.utils.data.dataloader.DataLoader, Known[int]):
        loader = cls(Squares(5), batch_size=2, num_workers=1)
        assert type(loader) is stoker.DataLoader
        assert isinstance(loader, Known)
        batches = list(loader)
        assert len(batches) == 3
        assert loader.stats()["batches"] == 3
        assert len(list(pickle.loads(pickle.dumps(loader)))) == 3
    assert "prefetch_factor" in inspect.signature(Known).parameters
    assert "executor" not in inspect.signature(Known).parameters
    assert type(stoker.DataLoader(Squares(2), rng="torch")) is stoker.DataLoader
    with pytest.raises(ValueError, match="batch_size"):
        Known(Squares(2), batch_size=-1)
    with pytest.raises(TypeError, match="nope"):
        Known(Squares(2), nope=1)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("make", "num_workers"), [(many_epochs, 0), (infinite, 1), (counting, 2), (replaced, 1)]
)
def test_subclasses_keep_their_overrides(make: Any, num_workers: int) -> None:
    torch.manual_seed(3)
    alone = epochs_of(make(Known)(Squares(10), batch_size=3, num_workers=num_workers), 2)

    @in_a_swapped_process
    def swapped() -> None:
        cls = make(Known)
        torch.manual_seed(3)
        loader = cls(Squares(10), batch_size=3, num_workers=num_workers)
        assert type(loader) is cls
        assert isinstance(loader, stoker.DataLoader)
        assert_same(alone, epochs_of(loader, 2))
        if make is not replaced:
            assert loader.stats()["batches"] >= 8
        if make is counting:
            assert cls.made == 2

    swapped()


@in_a_swapped_process
def test_arguments_of_a_subclass_are_its_own() -> None:
    loader = graph_loader(Known)(Graphs(), batch_size=4, exclude_keys=["edges"], num_workers=1)
    assert isinstance(loader, stoker.DataLoader)
    assert [sorted(batch) for batch in loader] == [["batch", "nodes"]] * 3
    assert inspect.signature(type(loader)).parameters["exclude_keys"].default is None

    class Bare(Known[Any]):
        pass

    assert isinstance(Bare(Graphs()), stoker.DataLoader)
    assert inspect.signature(Bare) == inspect.signature(Known)


@in_a_swapped_process
def test_copies_and_pickles_are_of_the_subclass() -> None:
    loader = Named(range(4), extra=5)
    assert isinstance(loader, stoker.DataLoader)
    for made in (copy.copy(loader), copy.deepcopy(loader), pickle.loads(pickle.dumps(loader))):
        assert type(made) is Named
        assert_same(list(loader), list(made))


@in_a_swapped_process
def test_a_subclass_may_call_torchs_methods_by_name() -> None:
    class Old(Known[Any]):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            Known.__init__(self, *args, **kwargs)

        def __iter__(self) -> Any:
            return Known.__iter__(self)

    loader = Old(Squares(4), num_workers=1, persistent_workers=True)
    assert_same(list(loader), list(loader))
    assert loader.stats()["batches"] == 8  # type: ignore[attr-defined]
    loader.close()  # type: ignore[attr-defined]


@in_a_swapped_process
def test_registries_and_constructors_of_a_subclass() -> None:
    """No class is made, so nothing is registered; a metaclass and the __new__ of a mixin work."""
    known: list[type] = []

    class Meta(type):
        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            made = super().__call__(*args, **kwargs)
            made.by_meta = True
            return made

    class Mixin:
        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            made = super().__new__(cls)
            made.arguments = len(args)  # type: ignore[attr-defined]
            return made

    class Registered(Known[Any], Mixin, metaclass=Meta):
        def __init_subclass__(cls) -> None:
            known.append(cls)

    class Derived(Registered):
        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            return super().__new__(cls, *args, **kwargs)

    loader = Derived(Squares(2), 2)
    assert known == [Derived]
    assert (loader.by_meta, loader.arguments) == (True, 2)
    assert isinstance(loader, stoker.DataLoader)
    assert len(list(loader)) == 1

    class Further(type(loader)):  # type: ignore[misc]
        pass

    assert known == [Derived, Further]
    assert len(list(Further(Squares(2)))) == 2


@in_a_swapped_process
def test_what_cannot_be_swapped_is_torchs_and_said_once() -> None:
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("stoker").addHandler(handler)

    class Stateful(Known[Any]):
        __module__ = "torchdata.stateful_dataloader"

    class Placed(Known[Any]):
        _place = 3

    class Named(Known[Any]):
        @property
        def name(self) -> str:
            return "mine"

    for cls in (Stateful, Placed, Named):
        for _ in range(2):
            loader = cls(Squares(3))
            assert type(loader) is cls
            assert type(iter(loader)).__module__ == "torch.utils.data.dataloader"
            assert len(list(loader)) == 3
    assert [text.rpartition("<locals>.")[2] for text in said] == [
        "Stateful stay torch's: it has an engine of its own",
        "Placed stay torch's: it has a '_place' of its own, and stoker's means something else",
        "Named stay torch's: it has a 'name' of its own, and stoker's means something else",
    ]


@in_a_swapped_process
def test_attributes_of_a_subclass_win() -> None:
    """One that has an ``rng`` of its own, before or after torch's __init__, is iterated by torch."""

    class Seeded(Known[Any]):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self.name = "train"
            super().__init__(*args, **kwargs)
            if kwargs:
                self.rng = torch.Generator()

    plain, seeded = Seeded(Squares(3)), Seeded(Squares(3), num_workers=1, persistent_workers=True)
    assert plain.name == seeded.name == "train"
    assert "StokerIter" in type(iter(plain)).__name__
    iterators = [iter(seeded), iter(seeded)]
    assert iterators[0] is iterators[1]
    assert type(iterators[0]).__module__ == "torch.utils.data.dataloader"
    assert_same(list(plain), list(seeded))
    assert isinstance(seeded.rng, torch.Generator)


@in_a_swapped_process
def test_an_argument_that_only_torch_knows() -> None:
    plain = Known.__init__

    def newer(self: Any, *args: Any, novelty: int = 0, **kwargs: Any) -> None:
        plain(self, *args, **kwargs)

    newer.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            *inspect.signature(plain).parameters.values(),
            inspect.Parameter("novelty", inspect.Parameter.KEYWORD_ONLY),
        ]
    )
    Known.__init__ = newer  # type: ignore[method-assign]
    assert type(Known(Squares(2), novelty=1)) is Known  # type: ignore[call-arg]
    assert type(Known(Squares(2))) is stoker.DataLoader
