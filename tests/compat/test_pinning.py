"""pin_memory without an accelerator, and the label profilers know a loader by."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.compat.compare import BOTH, Arguments, assert_same_run
from tests.compat.samples import Counting, Shaped

WORKERS = (0, 1, 2)

pytestmark = pytest.mark.skipif(torch.accelerator.is_available(), reason="these say what happens without one")


@pytest.mark.parametrize("num_workers", WORKERS)
@pytest.mark.parametrize("dataset", [Shaped("nested", 7), Counting(7)], ids=["map", "iterable"])
def test_pin_memory_warns_and_carries_on(dataset: Any, num_workers: int) -> None:
    def build() -> Arguments:
        return {"dataset": dataset, "batch_size": 3, "pin_memory": True, "num_workers": num_workers}

    theirs, ours = assert_same_run(build, epochs=2)
    about_pinning = [entry for entry in ours.warned if "pin" in entry[1]]
    assert about_pinning == theirs.warned
    assert len(about_pinning) == 2


@pytest.mark.parametrize("num_workers", WORKERS)
def test_pin_memory_device_is_deprecated_in_torchs_words(num_workers: int) -> None:
    def build() -> Arguments:
        return {
            "dataset": range(3),
            "pin_memory": True,
            "pin_memory_device": "cuda",
            "num_workers": num_workers,
        }

    theirs, ours = assert_same_run(build)
    assert [entry for entry in ours.warned if "pin" in entry[1]] == theirs.warned


@pytest.mark.parametrize("num_workers", WORKERS)
@pytest.mark.parametrize("loader_class", BOTH)
def test_profilers_find_the_label(loader_class: Any, num_workers: int) -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        iterator = iter(loader_class(range(3), num_workers=num_workers))
        for _ in iterator:
            pass
    label = f"enumerate(DataLoader)#{type(iterator).__name__}.__next__"
    assert label in {event.key for event in profile.key_averages()}
