"""What is read and how: the two halves of a loader's arguments, and ways to run it.

A recipe decides what every batch holds. A way must not: however the workers are chosen, wherever a run is cut and taken up again,
the batches are those of ``reference``.
"""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import stoker
from tests.compat.compare import assert_same, seed_everything
from tests.resume import datasets, orders

Batches = list[Any]


@dataclass(frozen=True)
class Recipe:
    """All that decides the batches."""

    data: str = "augmented"
    length: int = 40
    order: str = "shuffle"
    batch_size: int | None = 4
    drop_last: bool = False
    rng: Any = "batch"
    seed: int = 7


@dataclass(frozen=True)
class Way:
    """How the batches are made. ``deaths`` are indices whose first reader is killed."""

    workers: int = 0
    executor: Any = None
    method: str | None = None
    in_order: bool = True
    split: bool | None = None
    persistent: bool = False
    prefetch_epochs: bool = False
    deaths: tuple[int, ...] = ()


@dataclass(frozen=True)
class Leg:
    """One stretch of a run that is taken up again: so many batches, or all that are left."""

    way: Way
    batches: int | None = None
    dropped: bool = False
    """Whether the state is asked for when the iterator is gone, as after ``break``."""


def loader(recipe: Recipe, way: Way = Way(), folder: Path | None = None, salt: int = 0) -> Any:  # noqa: B008
    """A loader of a dataset and a sampler of its own. ``salt``: what may differ between a run and the one that goes on with it."""
    deaths = None if folder is None else datasets.Deaths(folder, way.deaths)
    dataset = datasets.KINDS[recipe.data](recipe.length, deaths)
    chosen = orders.arguments(recipe.order, dataset, recipe.length, salt)
    if "batch_sampler" not in chosen:
        chosen |= {"batch_size": recipe.batch_size, "drop_last": recipe.drop_last}
    if recipe.data == "ragged":
        chosen |= {"collate_fn": datasets.padded}
    return stoker.DataLoader(
        dataset,
        num_workers=way.workers,
        executor=way.executor,
        multiprocessing_context=way.method,
        in_order=way.in_order,
        split_batches=way.split,
        persistent_workers=way.persistent,
        prefetch_epochs=way.prefetch_epochs,
        rng=recipe.rng,
        **chosen,
    )


def reference(recipe: Recipe, epochs: int = 1) -> Batches:
    """The batches of some epochs without workers, without a pause."""
    return uninterrupted(recipe, Way(), epochs=epochs)


def uninterrupted(recipe: Recipe, way: Way, folder: Path | None = None, epochs: int = 1) -> Batches:
    seed_everything(recipe.seed)
    with loader(recipe, way, folder) as running:
        return [copied(batch) for _ in range(epochs) for batch in running]


def in_legs(recipe: Recipe, legs: list[Leg], folder: Path | None = None, epochs: int = 1) -> Batches:
    """The batches of a run that is cut, saved, sent through JSON and taken up by a fresh loader after every leg but the last.

    The last leg goes on for the rest of ``epochs``. Where a leg begins, all global generators are elsewhere.
    """
    got: Batches = []
    state: dict[str, Any] | None = None
    for number, leg in enumerate(legs):
        seed_everything(recipe.seed + 10_000 * number)
        with loader(recipe, leg.way, folder, salt=number) as running:
            if state is not None:
                running.load_state_dict(state)
            state = _run(running, leg, got, epochs if number == len(legs) - 1 else 1)
    return got


def _run(running: Any, leg: Leg, got: Batches, epochs: int) -> dict[str, Any]:
    if leg.batches is None:
        for _ in range(epochs):
            got.extend(copied(batch) for batch in running)
        return through_json(running.state_dict())
    iterator = iter(running)
    got.extend(copied(next(iterator)) for _ in range(leg.batches))
    if leg.dropped:
        del iterator
    return through_json(running.state_dict())


def through_json(state: dict[str, Any]) -> dict[str, Any]:
    """As a checkpoint in a text file gives it back."""
    again: dict[str, Any] = json.loads(json.dumps(state))
    assert json.dumps(again) == json.dumps(state)
    return again


def copied(batch: Any) -> Any:
    """The batch without its lease: a test keeps hundreds."""
    if isinstance(batch, torch.Tensor):
        return batch.clone()
    if isinstance(batch, dict):
        return {key: copied(value) for key, value in batch.items()}
    if isinstance(batch, list | tuple):
        return type(batch)(copied(value) for value in batch)
    return batch


def assert_batches(expected: Batches, got: Batches, *, ordered: bool = True) -> None:
    """Bit for bit the same; without ``ordered`` in any order."""
    if ordered:
        assert_same(expected, got, path="batches")
    else:
        assert sorted(map(fingerprint, expected)) == sorted(map(fingerprint, got))


def fingerprint(batch: Any) -> bytes:
    """Equal for equal batches, bit for bit."""
    return pickle.dumps(_plain(batch), protocol=4)


def _plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        array = value.numpy()
        return ("tensor", str(value.dtype), array.shape, array.tobytes())
    if isinstance(value, np.ndarray):
        return ("array", str(value.dtype), value.shape, value.tobytes())
    if isinstance(value, dict):
        return [(key, _plain(entry)) for key, entry in value.items()]
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return repr(value)
