"""``pin_memory=True`` without ``device``: page-locked batches that may be copied on any stream and dropped at once."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset

import stoker
from tests.fake_device import NAME, FakeDevice

WIDTH = 6000
BATCHES = 30
FAR_S = 1000.0


class Wide(Dataset[dict[str, torch.Tensor]]):
    def __len__(self) -> int:
        return BATCHES

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"x": torch.full((WIDTH,), float(index)), "y": torch.tensor(index)}


@pytest.fixture(autouse=True)
def _nothing_leaks(fake: FakeDevice) -> Iterator[None]:
    fake.order("late", delay_s=FAR_S, queries=1_000_000)
    yield
    gc.collect()
    fake.order("prompt")
    torch.accelerator.synchronize(0)
    assert fake.counters().pinned_blocks == 0
    assert "stoker-staging" not in [thread.name for thread in threading.enumerate()]


def load(executor: Any, **options: Any) -> stoker.DataLoader[dict[str, torch.Tensor]]:
    workers = 0 if executor == "inline" else 2
    return stoker.DataLoader(
        Wide(), batch_size=1, num_workers=workers, executor=executor, pin_memory=True, **options
    )


@pytest.mark.parametrize("executor", ["process", "thread", "inline"])
def test_batches_are_pinned_and_may_be_dropped_while_they_are_copied(fake: FakeDevice, executor: str) -> None:
    stream = torch.Stream(device=NAME)
    with load(executor) as loader:
        copies = []
        for _ in range(2):
            for batch in loader:
                assert batch["x"].is_pinned()
                assert batch["y"].is_pinned()
                with stream:
                    copies.append(batch["x"].to(NAME, non_blocking=True))
                del batch
        stream.synchronize()
        assert [copy.cpu().unique().tolist() for copy in copies] == [[float(i)] for i in range(BATCHES)] * 2
        del copies


def test_a_batch_is_pinned_as_one_block_by_another_thread(
    fake: FakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []
    pin = torch.Tensor.pin_memory

    def noted(tensor: torch.Tensor, device: Any = None) -> torch.Tensor:
        threads.append(threading.current_thread())
        return pin(tensor)

    monkeypatch.setattr(torch.Tensor, "pin_memory", noted)
    with load("process") as loader:
        assert [int(batch["y"]) for batch in loader] == list(range(BATCHES))
    assert len(threads) == BATCHES
    assert threading.main_thread() not in threads


def test_its_errors_reach_next_and_cost_one_batch(fake: FakeDevice) -> None:
    with load("process") as loader:
        batches = iter(loader)
        assert int(next(batches)["y"]) == 0
        assert int(next(batches)["y"]) == 1  # the next one is pinned by now, or will be
        fake.fail_pinning(2)
        seen: list[Any] = []
        while len(seen) < BATCHES - 2:
            try:
                seen.append(int(next(batches)["y"]))
            except RuntimeError as error:
                seen.append(type(error))
        assert seen.count(RuntimeError) == 2
        assert [each for each in seen if each is not RuntimeError] == [
            index for index, each in enumerate(seen, 2) if each is not RuntimeError
        ]
        with pytest.raises(StopIteration):
            next(batches)


def test_leaving_and_closing_end_the_thread(fake: FakeDevice) -> None:
    loader = load("process", persistent_workers=True)
    for _ in range(3):
        for batch in loader:
            if int(batch["y"]) == 3:
                break
    batches = iter(loader)
    kept = next(batches)
    loader.close()
    assert kept["x"].unique().tolist() == [0]
    del batch, kept, batches


def test_a_state_counts_batches_that_were_taken(fake: FakeDevice) -> None:
    with load("process") as loader:
        batches = iter(loader)
        assert [int(next(batches)["y"]) for _ in range(3)] == [0, 1, 2]
        state = loader.state_dict()
        del batches
    with load("inline") as again:
        again.load_state_dict(state)
        assert [int(batch["y"]) for batch in again] == list(range(3, BATCHES))
