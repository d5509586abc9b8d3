"""What a record says is all that the consumer waited, and of the right samples, also where no batch came of a wait."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from torch.utils.data import Dataset, IterableDataset

from stoker import DataLoader
from stoker.errors import WorkerTimeout

PAUSE_S = 0.02


class Slow(Dataset[Any]):
    """One index takes long, others nothing; some are bad."""

    def __init__(self, slow: Any = 5, bad: tuple[int, ...] = ()) -> None:
        self.slow, self.bad = slow, bad

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: Any) -> int:
        if index == self.slow:
            time.sleep(PAUSE_S)
        if index in self.bad:
            raise ValueError(index)
        return 1


class Endings(IterableDataset[Any]):
    """A stream that takes long to find out that it is over."""

    def __iter__(self) -> Iterator[int]:
        yield from range(4)
        time.sleep(PAUSE_S)


def record_of(loader: DataLoader[Any]) -> dict[str, Any]:
    found: dict[str, Any] = loader.stats()["record"]["loaders"][0]
    blamed_ns = sum(part["ns"] for part in found["blame"])
    assert blamed_ns == pytest.approx(found["totals"]["wait_ns"], abs=100)
    return found


@pytest.mark.parametrize("workers", [{}, {"num_workers": 1, "executor": "thread"}])
def test_the_wait_for_the_end_of_a_stream(workers: dict[str, Any]) -> None:
    loader = DataLoader(Endings(), batch_size=2, **workers)
    assert len(list(loader)) == 2
    assert record_of(loader)["totals"]["wait_ns"] > PAUSE_S * 1e9


def test_a_wait_that_timed_out() -> None:
    with DataLoader(Slow(slow=0), batch_size=4, num_workers=1, executor="thread", timeout=0.001) as loader:
        with pytest.raises(WorkerTimeout):
            next(iter(loader))
        found = record_of(loader)
    assert found["totals"]["steps"] == 0
    lost = [part for part in found["blame"] if part["stage"] == "fetch"]
    assert [(part["cause"], part["ns"] >= 1_000_000) for part in lost] == [("unknown", True)]
    assert found["totals"]["open_ns"] < found["totals"]["wait_ns"]


def test_the_wait_for_batches_in_any_order_over_several_epochs() -> None:
    options: dict[str, Any] = {"num_workers": 1, "persistent_workers": True, "executor": "thread"}
    with DataLoader(Slow(slow=7), batch_size=4, prefetch_epochs=True, in_order=False, **options) as loader:
        for _ in range(3):
            assert len(list(loader)) == 2
        totals = record_of(loader)["totals"]
    assert totals["epochs"] == 3
    assert (
        totals["wait_ns"] > 2 * PAUSE_S * 1e9
    )  # the first batch of an epoch may be there at once, and then the second is not


@pytest.mark.parametrize("on_bad_sample", ["raise", "skip", "replace"])
@pytest.mark.parametrize("batch_size", [None, 4])
def test_the_slowest_sample_has_its_index(on_bad_sample: Any, batch_size: int | None) -> None:
    bad = () if on_bad_sample == "raise" else (0, 2)
    loader = DataLoader(Slow(slow=1, bad=bad), batch_size=batch_size, on_bad_sample=on_bad_sample)
    list(loader)
    slowest = record_of(loader)["slowest"][0]
    assert slowest["index"] == 1
    assert slowest["ns"] >= PAUSE_S * 1e9


@pytest.mark.parametrize(
    ("index", "told"),
    [
        (np.int64(3), 3),
        ((1, 2), "(1, 2)"),
        ("x" * 1000, "x" * 200),
        ("\udcff", "\udcff"),
        (1 << 80, str(1 << 80)),
        (10**5000, "int"),
    ],
    ids=["numpy", "tuple", "long", "surrogate", "large", "huge"],
)
def test_an_index_as_json_can_have_it(index: Any, told: Any) -> None:
    loader = DataLoader(Slow(slow=index), batch_size=None, sampler=[index])
    list(loader)
    assert record_of(loader)["slowest"][0]["index"] == told


def test_a_batch_that_failed_has_no_moments_of_another() -> None:
    loader = DataLoader(Slow(bad=(4,)), batch_size=4)
    with pytest.raises(ValueError, match="4"):
        list(loader)
    steps = record_of(loader)["steps"]
    assert steps["fetched_ns"][0] >= steps["received_ns"][0]
    assert (steps["fetched_ns"][1], steps["slow_row"][1]) == (0, -1)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_workers": 1, "executor": "thread"},
        {"num_workers": 1, "executor": "thread", "persistent_workers": True},
    ],
)
def test_every_step_counts_and_what_lies_between_epochs_does_not(options: dict[str, Any]) -> None:
    step_s, pause_s, epochs, batches = 0.002, 0.1, 3, 2
    with DataLoader(Slow(slow=None), batch_size=8 // batches, **options) as loader:
        for _ in range(epochs):
            for _ in loader:
                time.sleep(step_s)
            time.sleep(pause_s)
        totals = record_of(loader)["totals"]
    assert totals["steps"] == epochs * batches
    assert epochs * batches * step_s * 1e9 <= totals["step_ns"]
    assert totals["step_ns"] + totals["wait_ns"] < totals["wall_ns"] - (epochs - 1) * pause_s * 0.9e9
