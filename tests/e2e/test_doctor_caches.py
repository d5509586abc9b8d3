"""The doctor on real caches: one inside another, random samples that stay, and the healthy ones that look alike."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import pytest
import torch
from torch.utils.data import ConcatDataset, Dataset

import stoker
from stoker._tools.doctor.checks.memory import stk608_nested_caches as stk608
from stoker._tools.doctor.checks.order import stk513_frozen_randomness as stk513
from stoker._tools.doctor.facts.randomness import RandomnessFacts
from stoker._tools.doctor.facts.target import TargetFacts
from stoker._tools.doctor.probes import randomness, target
from stoker._tools.sandbox.subject import Subject


def decode(index: int) -> torch.Tensor:
    return torch.full((16,), float(index))


def flip(picture: torch.Tensor) -> torch.Tensor:
    return picture * random.random()


class Pictures(Dataset[torch.Tensor]):
    """Decodes, and may change what comes of it at random."""

    def __init__(self, loader: Any = decode, transform: Any = None) -> None:
        self.loader, self.transform = loader, transform

    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> torch.Tensor:
        picture: torch.Tensor = self.loader(index)
        return picture if self.transform is None else self.transform(picture)


class Frozen(Pictures):
    """Keeps what it has drawn, as a decorator or a dict does."""

    @cache  # noqa: B019
    def kept(self, index: int) -> torch.Tensor:
        return super().__getitem__(index)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.kept(index)


def looked_at(dataset: Any) -> TargetFacts:
    return target.probe(Subject(dataset, arguments={"batch_size": 8, "num_workers": 2}))


def made_again(dataset: Any) -> RandomnessFacts:
    found = randomness.probe(Subject(dataset, arguments={"batch_size": 8, "num_workers": 2}))
    assert isinstance(found, RandomnessFacts)
    return found


@pytest.mark.parametrize("before", [None, "transform"])
def test_a_cached_decoder_in_a_cached_dataset_is_found(before: str | None) -> None:
    transform = None if before is None else flip
    dataset = Pictures(stoker.cached(decode, budget="16MiB"), transform)
    (found,) = stk608.examine(looked_at(stoker.cache(dataset, budget="16MiB", before=before)))
    assert found.where == "dataset.dataset.loader"
    assert "(stoker.cached) lies inside dataset (stoker.cache)" in found.evidence


def test_one_cache_and_two_side_by_side_are_healthy() -> None:
    alone = stoker.cache(Pictures(), budget="16MiB")
    decoders: Any = ConcatDataset([Pictures(stoker.cached(decode, budget="16MiB")), Pictures()])
    for healthy in (alone, decoders, Pictures()):
        assert not list(stk608.examine(looked_at(healthy)))


def test_random_samples_that_a_home_made_cache_keeps_are_found() -> None:
    (found,) = stk513.examine(made_again(Frozen(transform=flip)))
    assert found.where == "random"
    assert "stoker.cached" in found.advice


def test_random_transforms_behind_a_cache_are_healthy() -> None:
    for healthy in (
        Pictures(stoker.cached(decode, budget="16MiB"), flip),
        stoker.cache(Pictures(transform=flip), before="transform", budget="16MiB"),
        stoker.cache(Pictures(), budget="16MiB"),
        Frozen(),
    ):
        assert not list(stk513.examine(made_again(healthy))), healthy
