"""The constructor: torch's checks with torch's words, its defaults, and what may be changed afterwards."""

from __future__ import annotations

import inspect
import multiprocessing
import warnings
from typing import Any

import pytest
import torch
from torch.utils.data import IterableDataset, SequentialSampler

from tests.compat.compare import BOTH, Arguments, StokerLoader, TorchLoader, length_of, without_addresses
from tests.compat.samples import Counting, Squares

ROWS = Squares(8)
STREAM = Counting(8)

REFUSED: dict[str, Arguments] = {
    "negative workers": {"num_workers": -1},
    "negative timeout": {"timeout": -0.5},
    "prefetch without workers": {"prefetch_factor": 2},
    "negative prefetch": {"prefetch_factor": -1, "num_workers": 1},
    "persistent without workers": {"persistent_workers": True},
    "context without workers": {"multiprocessing_context": "fork"},
    "unknown context": {"multiprocessing_context": "fork it", "num_workers": 1},
    "context of a wrong type": {"multiprocessing_context": 3, "num_workers": 1},
    "sampler and shuffle": {"sampler": [1], "shuffle": True},
    "batch sampler and batch size": {"batch_sampler": [[1]], "batch_size": 2},
    "batch sampler and no batch size": {"batch_sampler": [[1]], "batch_size": None},
    "batch sampler and shuffle": {"batch_sampler": [[1]], "shuffle": True},
    "batch sampler and sampler": {"batch_sampler": [[1]], "sampler": [1]},
    "batch sampler and drop_last": {"batch_sampler": [[1]], "drop_last": True},
    "drop_last without batches": {"batch_size": None, "drop_last": True},
    "batch size zero": {"batch_size": 0},
    "batch size negative": {"batch_size": -4},
    "batch size a float": {"batch_size": 2.5},
    "batch size a bool": {"batch_size": True},
    "drop_last no bool": {"drop_last": 3},
    "empty and shuffled": {"dataset": Squares(0), "shuffle": True},
    "stream and shuffle": {"dataset": STREAM, "shuffle": True},
    "stream and a strange shuffle": {"dataset": STREAM, "shuffle": 3},
    "stream and sampler": {"dataset": STREAM, "sampler": [1]},
    "stream and batch sampler": {"dataset": STREAM, "batch_sampler": [[1]]},
    "stream and another sampler": {"dataset": STREAM, "sampler": SequentialSampler(ROWS)},
    "unknown argument": {"shufle": True},
}


def failure(loader_class: Any, arguments: Arguments) -> tuple[type[BaseException], str] | None:
    try:
        loader_class(**{"dataset": ROWS, **arguments})
    except Exception as error:
        return type(error), without_addresses(str(error)).replace(loader_class.__qualname__, "DataLoader")
    return None


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_arguments_are_refused_in_torchs_words(name: str) -> None:
    theirs, ours = (failure(loader_class, REFUSED[name]) for loader_class in BOTH)
    assert ours == theirs


def test_most_of_these_are_errors_at_all() -> None:
    """Guards the table above: only an empty shuffled dataset is accepted by some versions of torch."""
    accepted = [name for name, arguments in REFUSED.items() if failure(TorchLoader, arguments) is None]
    assert accepted in ([], ["empty and shuffled"])


@pytest.mark.parametrize("name", ["num_workers", "timeout"])
@pytest.mark.parametrize("value", [None, [1], "many"])
def test_values_of_a_wrong_type(name: str, value: object) -> None:
    theirs, ours = (failure(loader_class, {name: value}) for loader_class in BOTH)
    assert theirs is not None
    assert ours is not None
    # A text is a kind of number of workers here, though not this one.
    assert ours[0] is (ValueError if (name, value) == ("num_workers", "many") else theirs[0])


def test_the_signature_begins_with_torchs() -> None:
    theirs = inspect.signature(TorchLoader.__init__).parameters
    ours = inspect.signature(StokerLoader.__init__).parameters
    assert list(ours)[: len(theirs)] == list(theirs)
    for name, parameter in theirs.items():
        assert (ours[name].kind, ours[name].default) == (parameter.kind, parameter.default), name
    extra = [p for name, p in ours.items() if name not in theirs]
    assert all(p.kind is p.KEYWORD_ONLY and p.default is not p.empty for p in extra)


def test_arguments_by_position() -> None:
    positional = (ROWS, 3, False, None, None, 0, None, False, True, 0, None, None, None)
    theirs, ours = (loader_class(*positional) for loader_class in BOTH)
    assert (ours.batch_size, ours.drop_last, len(ours)) == (theirs.batch_size, theirs.drop_last, len(theirs))
    for loader_class in BOTH:
        with pytest.raises(TypeError):
            loader_class(*positional, 2)


ACCEPTED: list[Arguments] = [
    {},
    {"batch_size": 3, "drop_last": True, "shuffle": True},
    {"batch_size": None},
    {"batch_sampler": [[1, 2], [3]]},
    {"sampler": [3, 2, 1], "batch_size": 2, "shuffle": False},
    {"num_workers": 2, "persistent_workers": True, "timeout": 3.5},
    {"num_workers": 2, "prefetch_factor": 5, "in_order": False},
    {"num_workers": 1, "prefetch_factor": None},
    {"num_workers": 1, "multiprocessing_context": "spawn"},
    {"num_workers": 1, "multiprocessing_context": multiprocessing.get_context("forkserver")},
    {"dataset": STREAM, "batch_size": 4, "shuffle": False},
    {"dataset": STREAM, "shuffle": None, "batch_size": None},
    {"pin_memory": True, "pin_memory_device": "cuda"},
    {"generator": torch.Generator()},
    # Lightning builds a loader again with these two sets
    {"sampler": [1, 2], "shuffle": False, "batch_sampler": None},
    {"batch_size": 1, "drop_last": False, "batch_sampler": [[1]], "sampler": None, "shuffle": False},
]

COMPARED = [
    "batch_size",
    "num_workers",
    "prefetch_factor",
    "pin_memory",
    "pin_memory_device",
    "drop_last",
    "timeout",
    "worker_init_fn",
    "in_order",
    "persistent_workers",
    "collate_fn",
    "generator",
    "dataset",
    "_dataset_kind",
    "_auto_collation",
    "_IterableDataset_len_called",
    "_iterator",
]


@pytest.mark.parametrize("arguments", ACCEPTED, ids=lambda arguments: ",".join(arguments) or "none")
def test_attributes_after_construction(arguments: Arguments) -> None:
    theirs, ours = (loader_class(**{"dataset": ROWS, **arguments}) for loader_class in BOTH)
    assert isinstance(ours, TorchLoader)
    for name in COMPARED:
        assert getattr(ours, name) == getattr(theirs, name), name
    assert type(ours.sampler) is type(theirs.sampler)
    assert type(ours.batch_sampler) is type(theirs.batch_sampler)
    assert type(ours._index_sampler) is type(theirs._index_sampler)
    assert type(ours.multiprocessing_context) is type(theirs.multiprocessing_context)
    assert length_of(ours) == length_of(theirs)


@pytest.mark.parametrize("arguments", ACCEPTED, ids=lambda arguments: ",".join(arguments) or "none")
def test_every_argument_is_a_public_attribute_that_is_valid_again(arguments: Arguments) -> None:
    """Frameworks rebuild a loader from `vars(loader)`; `shuffle` lives on in the sampler, as in torch."""
    loader = StokerLoader(**{"dataset": ROWS, **arguments})
    names = [
        name
        for name in inspect.signature(StokerLoader.__init__).parameters
        if name not in ("self", "shuffle")
    ]
    values = {name: getattr(loader, name) for name in names}
    if loader._auto_collation and loader.batch_size is not None:
        del values["batch_sampler"]
    elif loader.batch_sampler is not None:
        values.update(batch_size=1, sampler=None)
    if isinstance(loader.dataset, IterableDataset):
        values["sampler"] = None
    again = StokerLoader(**values)
    assert length_of(again) == length_of(loader)


FROZEN = ["batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"]


@pytest.mark.parametrize("loader_class", BOTH)
@pytest.mark.parametrize("name", FROZEN)
def test_six_attributes_are_frozen(loader_class: Any, name: str) -> None:
    loader = loader_class(ROWS)
    with pytest.raises(
        ValueError, match=f"^{name} attribute should not be set after DataLoader is initialized$"
    ):
        setattr(loader, name, getattr(loader, name))


@pytest.mark.parametrize("loader_class", BOTH)
def test_other_attributes_may_be_set(loader_class: Any) -> None:
    loader = loader_class(ROWS, num_workers=1)
    loader.collate_fn = len
    loader.worker_init_fn = print
    loader.timeout = 5
    loader.something_new = 1
    loader.multiprocessing_context = "spawn"
    assert loader.multiprocessing_context.get_start_method() == "spawn"
    with pytest.raises(ValueError, match="should specify a valid start method in"):
        loader.multiprocessing_context = "swim"


@pytest.mark.parametrize("loader_class", BOTH)
def test_the_class_is_generic(loader_class: Any) -> None:
    assert list(loader_class[int](range(4), batch_size=2, collate_fn=sum)) == [1, 5]


def test_too_many_workers_are_warned_about_in_the_constructor() -> None:
    warned: list[set[tuple[Any, str]]] = []
    for loader_class in BOTH:
        with warnings.catch_warnings(record=True) as entries:
            warnings.simplefilter("always")
            loader_class(ROWS, num_workers=1000)
        warned.append({(e.category, str(e.message).split(".")[0]) for e in entries})
    theirs, ours = warned
    assert theirs == ours == {(UserWarning, "This DataLoader will create 1000 worker processes in total")}
