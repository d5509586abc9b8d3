"""What of a sample a cache could keep, by making some; and what the tuner says of it."""

from __future__ import annotations

import functools
import json
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, Dataset, IterableDataset, Subset

from stoker._runtime.simulation.cache_forecast import CacheForecast
from stoker._runtime.simulation.setting import Setting
from stoker._runtime.simulation.work import Demand, Host, Work
from stoker._tools.sandbox.outcome import FactUnavailable
from stoker._tools.sandbox.subject import Subject
from stoker._tools.tune.forms import data, markdown, screen
from stoker._tools.tune.instruments import sample_parts
from stoker._tools.tune.instruments.sample_parts import (
    SamplePart,
    SampleParts,
    measured_parts,
    value_bytes,
)
from stoker._tools.tune.model.cache import cache_forecast, cache_gain
from stoker._tools.tune.probes import cache
from tests.unit.tuning.tunings import tuning

MS = 1_000_000
HOST = Host(cpus=4, room_bytes=8 << 30, copy_bytes_per_s=4e9)
WORK = Work(rows=32, batch_ns=(32 * 5 * MS,) * 8, cpu_ns=(32 * 5 * MS,) * 8, batch_bytes=32 * 1000)
BEST = Setting(workers=3, prefetch=2)


class Decoding(Dataset[Any]):
    """Takes time where others decode, and keeps its functions as attributes, as torchvision's datasets do."""

    def __init__(self, transform: Any = None) -> None:
        self.loader = decode
        self.transform = transform

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> Any:
        picture = self.loader(index)
        return picture if self.transform is None else self.transform(picture)


class Clock:
    """In place of the instrument's own clock: work takes what it says, whatever else the machine does."""

    ns = 0

    def __call__(self) -> int:
        return Clock.ns


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_parts, "_clock", Clock())


def decode(index: int) -> Any:
    Clock.ns += 2 * MS
    return np.full((10, 10), index, dtype=np.uint8)


def flip(picture: Any) -> Any:
    return picture[:, ::-1] if random.random() < 0.5 else picture


def double(picture: Any) -> Any:
    Clock.ns += MS
    return np.concatenate([picture, picture])


class Compose:
    def __init__(self, *transforms: Any) -> None:
        self.transforms = list(transforms)

    def __call__(self, value: Any) -> Any:
        for each in self.transforms:
            value = each(value)
        return value


def parts(dataset: Any) -> dict[str, SamplePart]:
    found = measured_parts(dataset, range(4), 0.1)
    return {f"{each.kind} {each.path}": each for each in found.parts}


def test_samples_that_draw_nothing_can_be_kept_whole() -> None:
    found = measured_parts(Decoding(), range(4), 0.1)
    assert found.drawn == ()
    (whole,) = found.parts
    assert (whole.kind, whole.nbytes) == ("whole", 100)
    assert whole.ns == found.sample_ns


def test_random_samples_are_never_kept_whole_and_the_generator_is_named() -> None:
    found = measured_parts(Decoding(flip), range(4), 0.1)
    assert found.drawn == ("random",)
    assert "whole" not in {each.kind for each in found.parts}


def test_before_a_random_transform_comes_the_decoder() -> None:
    found = parts(Decoding(flip))
    assert set(found) == {"function dataset.loader", "before dataset.transform"}
    assert found["function dataset.loader"].nbytes == 100
    assert found["before dataset.transform"].nbytes == 100
    assert found["function dataset.loader"].ns == 2 * MS


def test_in_a_compose_everything_before_the_first_random_step_counts() -> None:
    found = parts(Decoding(Compose(double, flip, double)))["before dataset.transform"]
    assert found.nbytes == 200  # as it is after the first of them
    alone = parts(Decoding(Compose(flip, double)))["before dataset.transform"]
    assert alone.nbytes == 100
    assert (found.ns, alone.ns) == (3 * MS, 2 * MS)


def test_a_generator_of_the_datasets_own_is_seen_too() -> None:
    class Own(Decoding):
        def __init__(self) -> None:
            super().__init__()
            self.rng = np.random.default_rng(0)

        def __getitem__(self, index: int) -> Any:
            return super().__getitem__(index) + self.rng.integers(9)

    found = measured_parts(Own(), range(2), 0.1)
    assert found.drawn == ("dataset.rng",)
    assert [each.path for each in found.parts] == ["dataset.loader"]


def test_a_dataset_that_draws_before_it_decodes_has_no_part_before() -> None:
    class Early(Decoding):
        def __getitem__(self, index: int) -> Any:
            random.random()
            return super().__getitem__(index)

    assert parts(Early(flip)) == {}


def test_the_functions_of_a_dataset_in_a_subset_are_named_as_one_types_them() -> None:
    assert set(parts(Subset(Decoding(flip), range(50)))) == {
        "function dataset.dataset.loader",
        "before dataset.dataset.transform",
    }


class Kept(Decoding):
    def cache_info(self) -> None:
        """As a cached dataset has it."""


@pytest.mark.parametrize(
    "dataset",
    [Kept(), Subset(Kept(), [0]), ConcatDataset([Decoding(), Kept()]), Decoding(functools.lru_cache(double))],
    ids=["whole", "in a subset", "joined", "a function"],
)
def test_a_dataset_with_a_cache_needs_no_other(dataset: Any) -> None:
    with pytest.raises(FactUnavailable, match="cached already"):
        cache.probe(Subject(dataset, arguments={"batch_size": 4}))


def test_a_stream_is_not_looked_at() -> None:
    class Endless(IterableDataset[int]):
        def __iter__(self) -> Any:
            yield from range(9)

    with pytest.raises(FactUnavailable, match="no samples to look up"):
        cache.probe(Subject(Endless()))


@pytest.mark.parametrize(
    ("value", "nbytes"),
    [
        (torch.zeros(3, 4), 48),
        (np.zeros(5, np.int16), 10),
        ({"image": torch.zeros(2), "name": "abc"}, 11),
        ((b"abcd", [np.zeros(1, np.uint8)]), 5),
        (7, 64),
    ],
)
def test_sizes_of_values(value: Any, nbytes: int) -> None:
    assert value_bytes(value) == nbytes


def test_sizes_of_pictures() -> None:
    image = pytest.importorskip("PIL.Image")
    assert value_bytes(image.new("RGB", (20, 10))) == 600


def seen(*found: SamplePart, sample_ns: float = 5 * MS) -> SampleParts:
    return SampleParts(4, sample_ns, (), found)


def test_each_part_has_its_line_to_type() -> None:
    whole = cache_forecast(WORK, HOST, seen(SamplePart("whole", "dataset", 5 * MS, 1000)), 10_000)
    before = cache_forecast(WORK, HOST, seen(SamplePart("before", "dataset.transform", 4 * MS, 1000)), 10_000)
    function = cache_forecast(
        WORK, HOST, seen(SamplePart("function", "dataset.loader", 4 * MS, 1000)), 10_000
    )
    assert [each and each.edit for each in (whole, before, function)] == [
        'dataset = stoker.cache(dataset, budget="13MiB")',
        'dataset = stoker.cache(dataset, before="transform", budget="13MiB")',
        'dataset.loader = stoker.cached(dataset.loader, budget="13MiB")',
    ]


def test_parts_count_by_their_share_of_what_a_worker_takes() -> None:
    slower = seen(SamplePart("whole", "dataset", 10 * MS, 1000), sample_ns=10 * MS)
    found = cache_forecast(WORK, HOST, slower, 10_000)
    assert found is not None
    assert found.sample_ns == pytest.approx(5 * MS)
    assert found.saved_ns < 5 * MS


def test_the_gain_is_that_of_the_replay() -> None:
    found = cache_forecast(WORK, HOST, seen(SamplePart("whole", "dataset", 5 * MS, 1000)), 10_000)
    assert found is not None
    fast = cache_gain(found, BEST, HOST, WORK, Demand(0))
    assert fast is not None
    assert fast > 0.9
    bounded = cache_gain(found, BEST, HOST, WORK, Demand(40 * MS))  # the step itself is 40 ms of these 53
    assert bounded is not None
    assert 0.1 < bounded < 0.4
    assert cache_gain(found, BEST, HOST, WORK, Demand(500 * MS)) is None


FOUND = CacheForecast(
    edit='dataset = stoker.cache(dataset, budget="1.5GiB")', what="samples", samples=10_000, sample_ns=6e6, saved_ns=5.9e6,
    hit_ns=1e5, budget_bytes=3 << 29, room_bytes=4 << 30,
)  # fmt: skip


def test_the_screen_has_one_line_of_numbers_and_the_edit() -> None:
    text = screen.render(tuning(cache=FOUND, cache_gain=0.4))
    told = " ".join(text.split())
    assert "A cache of 1.5 GiB holds all 10,000 samples (of 4 GiB available)" in told
    assert "about −40% of the step's time" in told
    assert FOUND.edit in told
    assert FOUND.edit in markdown.render(tuning(cache=FOUND, cache_gain=0.4))
    assert "cache" not in screen.render(tuning()).lower()


def test_it_comes_back_from_json_and_old_tunings_have_none() -> None:
    made = tuning(cache=FOUND, cache_gain=0.4)
    told = json.loads(data.render(made))
    back = data.from_json(told)
    assert (back.cache, back.cache_gain) == (FOUND, 0.4)
    del told["cache"], told["cache_gain"]
    assert data.from_json(told) == replace(made, cache=None, cache_gain=None)
