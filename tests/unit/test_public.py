"""The public face: pinned names, and arguments that are attributes a constructor accepts again."""

from __future__ import annotations

import builtins
import copy
import inspect
import pickle
import runpy
import sys
from typing import Any

import pytest
import torch
import torch.utils.data
from torch.utils.data import BatchSampler, IterableDataset, SequentialSampler

import stoker
from stoker.arguments import LeftOpen

OURS = [
    "executor",
    "device",
    "device_prefetch",
    "rng",
    "restarts",
    "on_bad_sample",
    "memory_budget",
    "split_batches",
    "threads_per_worker",
    "snapshot_every_n_steps",
    "prefetch_epochs",
    "name",
    "record",
]
ARGUMENTS = list(inspect.signature(stoker.DataLoader).parameters)


def identity(rows: Any) -> Any:
    return rows


class Words(IterableDataset[str]):
    def __iter__(self) -> Any:
        return iter(("a", "b", "c"))


def rebuilt(loader: Any, *, without: set[str]) -> Any:
    """As frameworks do it: every argument from the attribute of its name."""
    return stoker.DataLoader(**{name: getattr(loader, name) for name in ARGUMENTS if name not in without})


def seen(loader: Any) -> dict[str, Any]:
    return {name: getattr(loader, name) for name in ARGUMENTS if hasattr(loader, name)}


def test_public_names_are_pinned() -> None:
    shared = ["SharedArray", "SharedDict", "SharedList", "SharedSet", "SharedTuple"]
    ours = [
        "DataLoader",
        "ElasticDistributedSampler",
        "Ray",
        *shared,
        "__version__",
        "cache",
        "cached",
        "doctor",
        "explain",
        "generator",
        "share",
        "tune",
    ]
    assert dir(stoker) == sorted(stoker.__all__) == ours
    assert all(hasattr(stoker, name) for name in stoker.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'stoker' has no attribute 'Dataloader'"):
        _ = stoker.Dataloader


def test_importing_stoker_imports_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """``import stoker`` alone costs nothing: torch comes with the first public name that needs it."""
    imported: list[str] = []
    stock = builtins.__import__

    def record(name: str, *rest: Any, **more: Any) -> Any:
        imported.append(name)
        return stock(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", record)
    again = runpy.run_path(str(stoker.__file__))
    assert again["__all__"] == stoker.__all__
    assert "DataLoader" not in again
    package = [name for name in imported if name.partition(".")[0] not in sys.stdlib_module_names]
    assert package == []


def test_the_loader_is_torchs_loader_by_type() -> None:
    assert issubclass(stoker.DataLoader, torch.utils.data.DataLoader)
    assert isinstance(stoker.DataLoader([1]), torch.utils.data.DataLoader)  # type: ignore[arg-type]


def test_torchs_arguments_come_first_and_ours_by_keyword_only() -> None:
    theirs = inspect.signature(torch.utils.data.DataLoader).parameters
    ours = inspect.signature(stoker.DataLoader).parameters
    assert list(ours) == [*theirs, *OURS]
    for name, parameter in theirs.items():
        assert ours[name].kind is parameter.kind, name
        assert ours[name].default == parameter.default, name
    assert all(ours[name].kind is inspect.Parameter.KEYWORD_ONLY for name in OURS)
    assert all(ours[name].default is not inspect.Parameter.empty for name in OURS)


def test_every_argument_but_shuffle_is_an_attribute() -> None:
    """torch has no ``shuffle`` attribute either: it lives on as the sampler."""
    loader: Any = stoker.DataLoader([1, 2, 3])  # type: ignore[arg-type]
    assert [name for name in ARGUMENTS if not hasattr(loader, name)] == ["shuffle"]


GIVEN: dict[str, dict[str, Any]] = {
    "nothing": {},
    "inline": {"batch_size": 2, "shuffle": True, "drop_last": True, "executor": "inline"},
    "workers": {"num_workers": 2, "timeout": 3, "persistent_workers": True, "in_order": False},
    "prefetch": {"num_workers": 2, "prefetch_factor": 5},
    "callables": {"collate_fn": identity, "worker_init_fn": identity, "num_workers": 1},
    "context": {"num_workers": 1, "multiprocessing_context": "spawn", "generator": torch.Generator()},
    "ours": {
        "num_workers": 2, "persistent_workers": True, "executor": "thread", "rng": "sample", "restarts": 0, "memory_budget": "1GiB",
        "split_batches": False, "snapshot_every_n_steps": 3, "prefetch_epochs": True, "name": "train",
    },
    "no batches": {"batch_size": None},
}  # fmt: skip


@pytest.mark.parametrize("given", GIVEN.values(), ids=GIVEN)
def test_a_loader_can_be_rebuilt_from_its_attributes(given: dict[str, Any]) -> None:
    loader: Any = stoker.DataLoader([1, 2, 3], **given)  # type: ignore[arg-type]
    again = rebuilt(loader, without={"shuffle", "batch_sampler"})
    first, second = seen(loader), seen(again)
    for name in ("batch_sampler",):  # made anew from the same sampler
        assert type(first.pop(name)) is type(second.pop(name))
    assert first == second
    for name, value in given.items():
        if name not in ("shuffle", "multiprocessing_context"):
            assert getattr(again, name) == value, name
    assert again._resolved() == loader._resolved()


def test_a_loader_with_a_batch_sampler_can_be_rebuilt() -> None:
    sampler = BatchSampler(SequentialSampler(range(5)), 2, False)
    loader: Any = stoker.DataLoader(range(5), batch_sampler=sampler)  # type: ignore[arg-type]
    again = rebuilt(loader, without={"shuffle", "sampler", "batch_size", "drop_last"})
    assert again.batch_sampler is sampler
    assert [batch.tolist() for batch in again] == [[0, 1], [2, 3], [4]]


def test_a_loader_of_a_stream_can_be_rebuilt() -> None:
    loader: Any = stoker.DataLoader(Words(), batch_size=2)
    again = rebuilt(loader, without={"shuffle", "sampler", "batch_sampler"})
    assert list(again) == list(loader) == [["a", "b"], ["c"]]


def test_a_prefetch_factor_left_open_stays_open() -> None:
    loader: Any = stoker.DataLoader([1], num_workers=2)  # type: ignore[arg-type]
    assert loader.prefetch_factor == 2
    copies = [
        rebuilt(loader, without={"shuffle", "batch_sampler"}),
        copy.deepcopy(loader),
        pickle.loads(pickle.dumps(loader)),
    ]
    for again in copies:
        assert isinstance(again.prefetch_factor, LeftOpen)
        assert again._resolved().deepen


def test_a_prefetch_factor_given_stays_given() -> None:
    loader: Any = stoker.DataLoader([1], num_workers=2, prefetch_factor=2)  # type: ignore[arg-type]
    again = rebuilt(loader, without={"shuffle", "batch_sampler"})
    assert type(again.prefetch_factor) is int
    assert not again._resolved().deepen


def test_an_open_prefetch_factor_is_no_choice_when_workers_go_away() -> None:
    """Frameworks set ``num_workers=0`` while debugging; torch refuses a prefetch_factor then."""
    loader: Any = stoker.DataLoader([1], num_workers=2)  # type: ignore[arg-type]
    again: Any = stoker.DataLoader([1], num_workers=0, prefetch_factor=loader.prefetch_factor)  # type: ignore[arg-type]
    assert again.prefetch_factor is None


def test_the_version_is_the_packages() -> None:
    from importlib.metadata import version

    assert stoker.__version__ == version("stoker")


def test_worker_processes_are_refused_in_words_where_they_cannot_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr("select.epoll")
    with pytest.raises(RuntimeError, match=r"need Linux.*executor='thread'"):
        iter(stoker.DataLoader(range(4), num_workers=1))  # type: ignore[arg-type]


def test_windows_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "win32")
    with pytest.raises(ImportError, match="needs Linux"):
        stoker.__getattr__("DataLoader")


def test_a_record_knows_the_defaults() -> None:
    loader: Any = stoker.DataLoader(range(4))  # type: ignore[arg-type]
    assert len(list(loader)) == 4
    options = loader.stats()["record"]["loaders"][0]["options"]
    assert set(options) == {
        "num_workers", "batch_size", "pin_memory", "drop_last", "timeout", "persistent_workers", "in_order", "prefetch_epochs",
        "rng", "restarts", "on_bad_sample", "split_batches", "memory_budget", "threads_per_worker", "prefetch_factor", "executor",
        "sampler", "collate_fn", "device", "device_prefetch",
    }  # fmt: skip
    defaults = {name: option["value"] for name, option in options.items() if option["why"] == "default"}
    parameters = inspect.signature(stoker.DataLoader).parameters
    assert defaults.pop("collate_fn") == "default_collate"
    assert defaults == {name: parameters[name].default for name in defaults}
    assert {"num_workers", "batch_size", "timeout", "prefetch_epochs", "rng", "restarts"} <= set(defaults)
