"""Rows 12 and 48: augmentations that repeat in every worker and epoch, results that change with ``num_workers``."""

from __future__ import annotations

import copy
import logging
import os
import random
from collections.abc import Iterator
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, Subset

import stoker
from stoker._runtime.worker.rng import seeding
from tests.compat.compare import assert_same, seed_everything

os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")  # it would ask the network which version is the newest

ROWS = 24
FORKED: list[dict[str, Any]] = [
    {"num_workers": 1, "multiprocessing_context": "fork"},
    {"num_workers": 2, "multiprocessing_context": "fork"},
    {"num_workers": 2, "multiprocessing_context": "fork", "persistent_workers": True},
]
SPAWNED: dict[str, Any] = {"num_workers": 2, "multiprocessing_context": "spawn", "persistent_workers": True}


@pytest.fixture(autouse=True)
def _put_back() -> Iterator[None]:
    with seeding.generators_kept():
        yield


class Noise:
    """A transform with a generator of its own."""

    def __init__(self, generator: Any) -> None:
        self.generator = generator

    def __call__(self, number: float) -> float:
        return float(number + self.generator.random())


class Augmented(Dataset[Any]):
    """What people store a generator for."""

    def __init__(self) -> None:
        self.generator = np.random.default_rng(0)
        self.transforms = [Noise(random.Random(0)), Noise(np.random.default_rng(0))]

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> tuple[float, ...]:
        return self.generator.random(), *(transform(index) for transform in self.transforms)


class Images(Dataset[Any]):
    """Pictures through Albumentations, noise from OpenCV, and a generator stored beside them."""

    def __init__(self) -> None:
        import albumentations

        self.generator = np.random.RandomState(0)
        self.transform = albumentations.Compose(
            [
                albumentations.RandomBrightnessContrast(p=0.8),
                albumentations.GaussNoise(p=1),
                albumentations.OneOf([albumentations.Blur(p=1), albumentations.CoarseDropout(p=1)], p=0.5),
            ]
        )

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> dict[str, Any]:
        noise = np.zeros((4, 4), np.float32)
        cv2.randn(noise, 0, 1)  # type: ignore[call-overload]  # its stubs want arrays
        image = self.transform(image=np.full((16, 16, 3), 128, np.uint8))["image"]
        return {"image": image, "noise": noise, "stored": self.generator.normal()}


def epochs(dataset: Any, count: int = 2, **arguments: Any) -> list[list[Any]]:
    seed_everything(5)
    with stoker.DataLoader(dataset, batch_size=5, shuffle=True, **arguments) as loader:
        return [list(loader) for _ in range(count)]


def drawn(found: list[list[Any]], column: int) -> list[float]:
    return [float(number) for epoch in found for batch in epoch for number in batch[column]]


@pytest.mark.parametrize("rng", ["batch", "sample"])
def test_a_stored_generator_repeats_nowhere(rng: str) -> None:
    """Row 12: another number for every sample of every worker and epoch, and the same ones for every number of workers."""
    expected = epochs(Augmented(), rng=rng)
    for column in range(3):
        assert len(set(drawn(expected, column))) == 2 * ROWS
    for arguments in FORKED:
        assert_same(expected, epochs(Augmented(), rng=rng, **arguments))


def test_stored_generators_of_the_trainers_process_stay_where_they_are() -> None:
    """Row 12: without workers too; and where torch's ways are asked for they go on as they do there."""
    dataset = Augmented()
    expected = copy.deepcopy(dataset)
    seed_everything(5)
    list(stoker.DataLoader(dataset))
    assert dataset[0] == expected[0]
    seed_everything(5)
    theirs = list(torch.utils.data.DataLoader(expected))
    seed_everything(5)
    assert_same(theirs, list(stoker.DataLoader(dataset, rng="torch")))


def test_a_stored_generator_that_comes_later_is_seeded_too() -> None:
    """Row 12: a new transform reaches persistent workers, and what it draws is the same as without workers."""

    def run(**arguments: Any) -> list[list[Any]]:
        seed_everything(5)
        dataset = Augmented()
        found = []
        with stoker.DataLoader(Subset(dataset, range(ROWS)), batch_size=5, **arguments) as loader:
            for number in range(3):
                found.append(list(loader))
                dataset.transforms = [Noise(np.random.default_rng(number)) for _ in range(number + 2)]
                dataset.generator = np.random.Generator(np.random.Philox())
        return found

    expected = run()
    assert [len(epoch[0]) for epoch in expected] == [3, 3, 4]
    assert_same(expected, run(num_workers=2, persistent_workers=True))


def test_threads_are_told_what_to_use_instead(caplog: pytest.LogCaptureFixture) -> None:
    """Row 12: worker threads share the one object; that is said, once for a loader."""
    with caplog.at_level(logging.WARNING, "stoker"):
        epochs(Augmented(), num_workers=2, executor="thread")
    [message] = caplog.messages
    assert message.startswith("dataset.generator is a random generator that worker threads share")


def test_albumentations_and_opencv_draw_the_same_for_every_number_of_workers() -> None:
    """Rows 12 and 48: the real library, which keeps generators on its transforms, and OpenCV's global one."""
    expected = epochs(Images())
    for name in ("image", "noise", "stored"):
        rows = torch.cat([batch[name].reshape(len(batch[name]), -1) for epoch in expected for batch in epoch])
        assert len(rows.unique(dim=0)) == 2 * ROWS, name
    for arguments in (*FORKED, SPAWNED):
        assert_same(expected, epochs(Images(), **arguments))


def opencv() -> float:
    number = np.zeros((1, 1), np.float32)
    cv2.randu(number, 0, 1)  # type: ignore[call-overload]  # its stubs want arrays
    return float(number[0, 0])


class Global(Dataset[Any]):
    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> tuple[float, ...]:
        return random.random(), float(np.random.rand()), float(torch.rand(())), opencv()


def test_results_do_not_change_with_the_number_of_workers() -> None:
    """Row 48: and what the trainer draws between batches does not either."""

    def run(**arguments: Any) -> list[Any]:
        seed_everything(5)
        found: list[Any] = []
        for batch in stoker.DataLoader(Global(), batch_size=5, shuffle=True, **arguments):
            found += [batch, random.random(), np.random.rand(), torch.rand(2)]
        return found

    expected = run()
    for column in range(4):
        assert len(set(drawn([expected[::4]], column))) == ROWS
    for arguments in FORKED:
        assert_same(expected, run(**arguments))


@pytest.mark.parametrize("rng", ["batch", "sample"])
def test_opencv_does_not_begin_anew_in_every_thread(rng: str) -> None:
    """Rows 12 and 48: it has a generator for each thread, so that threads may be seeded like processes."""

    class Drawn(Global):
        def __getitem__(self, index: int) -> tuple[float, ...]:
            return (opencv(),)

    expected = epochs(Drawn(), rng=rng)
    assert len(set(drawn(expected, 0))) == 2 * ROWS
    assert_same(expected, epochs(Drawn(), rng=rng, num_workers=2, executor="thread"))


def test_what_the_trainer_draws_from_opencv_is_not_what_a_sample_drew() -> None:
    """Row 48: its state cannot be put back; the trainer gets numbers that depend on the batch alone."""

    class Draws(Dataset[Any]):
        def __init__(self, times: int) -> None:
            self.times = times

        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> Any:
            return [opencv() for _ in range(self.times)]

    def run(times: int) -> tuple[list[float], list[float]]:
        torch.manual_seed(5)
        between, inside = [], []
        for batch in stoker.DataLoader(Draws(times), batch_size=2):
            between.append(opencv())
            inside += [float(number) for column in batch for number in column]
        return between, inside

    (few, made), (many, _) = run(1), run(3)
    assert few == many
    assert not set(few) & set(made)
