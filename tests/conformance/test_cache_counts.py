"""What caches did reaches ``stats()`` and the record: with every executor and start method, and after kills."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset

import stoker

SAMPLES = 32


class Numbers(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((4,), index)


class Deadly(Numbers):
    """Kills its worker once, in the middle of the second epoch."""

    def __init__(self, inner: Any, flag: str) -> None:
        self.inner, self.flag = inner, flag

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 17 and os.path.exists(self.flag):
            os.unlink(self.flag)
            os.kill(os.getpid(), signal.SIGKILL)
        found: torch.Tensor = self.inner[index]
        return found


WAYS: dict[str, dict[str, Any]] = {
    "inline": {"num_workers": 0},
    "thread": {"num_workers": 2, "executor": "thread"},
    "persistent": {"num_workers": 2, "persistent_workers": True},
    "threads of a worker": {"num_workers": 1, "threads_per_worker": 2},
    "no record": {"num_workers": 1, "record": False},
    **{
        method: {"num_workers": 2, "multiprocessing_context": method}
        for method in ("fork", "spawn", "forkserver")
    },
}


@pytest.mark.parametrize("way", WAYS)
def test_every_sample_is_a_miss_once_and_a_hit_in_each_later_epoch(way: str) -> None:
    loader = stoker.DataLoader(stoker.cache(Numbers(), budget="16MiB"), batch_size=4, **WAYS[way])
    assert loader.stats()["cache"] is None
    for _ in range(3):
        for _ in loader:
            pass
    use = loader.stats()["cache"]
    assert (use["hits"], use["misses"], use["passed"]) == (2 * SAMPLES, SAMPLES, 0)
    assert use["hit_bytes"] > 0
    assert use["stored_bytes"] > 0
    assert use["saved_ns"] > 0
    loader.close()
    assert loader.stats()["cache"] == use  # when the workers are gone
    record = loader.stats()["record"]
    if record is not None:
        assert record["loaders"][0]["cache"] == use


def test_two_loaders_of_one_thread_do_not_count_for_each_other() -> None:
    dataset = stoker.cache(Numbers(), budget="16MiB")
    first, second = (stoker.DataLoader(dataset, batch_size=4) for _ in range(2))
    list(first)
    dataset[0]  # the user's own look is no loader's
    list(second)
    assert first.stats()["cache"]["misses"] == SAMPLES
    assert first.stats()["cache"]["hits"] == 0
    assert second.stats()["cache"]["hits"] == SAMPLES


def test_a_cached_function_counts_too() -> None:
    dataset = Numbers()
    dataset.double = stoker.cached(_double, budget="16MiB")  # type: ignore[attr-defined]
    with stoker.DataLoader(Doubling(dataset), batch_size=4, num_workers=1) as loader:
        for _ in range(2):
            list(loader)
        use = loader.stats()["cache"]
        assert (use["hits"], use["misses"]) == (SAMPLES, SAMPLES)


def _double(index: int) -> torch.Tensor:
    return torch.full((4,), 2 * index)


class Doubling(Numbers):
    def __init__(self, inner: Any) -> None:
        self.double = inner.double

    def __getitem__(self, index: int) -> torch.Tensor:
        found: torch.Tensor = self.double(index)
        return found


def test_what_a_killed_worker_counted_is_not_lost(tmp_path: Any) -> None:
    flag = tmp_path / "kill"
    cached = stoker.cache(Numbers(), budget="16MiB")
    dataset = Deadly(cached, str(flag))
    with stoker.DataLoader(dataset, batch_size=4, num_workers=1, restarts=1) as loader:
        list(loader)
        flag.touch()
        batches = list(loader)
        assert torch.cat(batches)[:, 0].tolist() == list(range(SAMPLES))
        stats = loader.stats()
    assert stats["worker_deaths"] == 1
    use = stats["cache"]
    assert use["misses"] == SAMPLES
    # The batch that was cut off is made again; what its worker had fetched of it was not counted.
    assert SAMPLES <= use["hits"] <= SAMPLES + 4


def test_a_loader_without_a_cache_has_no_figures_at_all() -> None:
    loader = stoker.DataLoader(Numbers(), batch_size=4)
    list(loader)
    stats = loader.stats()
    assert stats["cache"] is None
    assert stats["record"]["loaders"][0]["cache"] is None
    assert stats["record"]["loaders"][0]["samples"] == SAMPLES
