"""The examples of docs/resume.md run as they are printed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import IterableDataset

import stoker
from tests.resume.runs import through_json

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")

PAGE = Path(__file__).resolve().parents[2] / "docs" / "resume.md"


class Stopped(Exception):
    """The power goes off."""


def example(heading: str, number: int = 0) -> str:
    """One of the Python examples below a heading; the first heading is the page's title."""
    section = next(
        part for part in re.split(r"^#+ ", PAGE.read_text(), flags=re.M) if part.startswith(heading)
    )
    blocks = re.findall(r"^```python\n(.*?)^```", section, flags=re.M | re.S)
    return str(blocks[number])


def names_of(source: str, **given: Any) -> dict[str, Any]:
    names = {"torch": torch, "stoker": stoker, "os": os, **given}
    exec(compile(source, str(PAGE), "exec"), names)
    return names


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_training_loop(here: Path) -> None:
    """Stopped at three points, in the second epoch too, it trains on what a run without a stop trains on."""

    def run(stop_after: int | None) -> list[list[int]]:
        seen: list[list[int]] = []

        def train(model: Any, optimizer: Any, batch: torch.Tensor) -> None:
            if len(seen) == stop_after:
                raise Stopped
            seen.append(batch.tolist())
            torch.rand(1)  # dropout, say

        source = example("Resume in mid-epoch").replace("num_workers=8", "num_workers=2")
        given = {
            "dataset": range(1000),
            "epochs": 3,
            "train": train,
            "time_to_save": lambda: True,
            "model": torch.nn.Linear(1, 1),
        }
        given["optimizer"] = torch.optim.SGD(given["model"].parameters())  # type: ignore[attr-defined]
        with suppress(Stopped):
            names_of(source, **given)
        return seen

    torch.manual_seed(3)
    whole = run(None)
    assert len(whole) == 48
    (here / "run.pt").unlink()
    torch.manual_seed(3)
    got = []
    for stop in (5, 20, 9, None):
        got += run(stop)
        torch.manual_seed(stop or 0)
    assert got == whole


def test_a_sampler_of_ones_own() -> None:
    shards = names_of(example("Samplers"))["Shards"]

    def running() -> Any:
        return stoker.DataLoader(range(20), sampler=shards(20), batch_size=3, num_workers=2)  # type: ignore[arg-type]

    with running() as first:
        iterator = iter(first)
        seen = [next(iterator).tolist() for _ in range(3)]
        state = through_json(first.state_dict())
        del iterator
    with running() as second:
        second.load_state_dict(state)
        assert seen + [batch.tolist() for batch in second] == [
            [*range(at, min(at + 3, 20))] for at in range(0, 20, 3)
        ]
        assert len(list(second)) == 7


def test_an_iterable_dataset_and_other_numbers_of_workers(here: Path) -> None:
    """Some streams have not begun, some are in the middle, some are at their end."""
    sizes = (1, 2, 9, 4)
    for number, size in enumerate(sizes):
        Path(f"{number}.txt").write_text("".join(f"{number}.{line}\n" for line in range(size)))
    lines = names_of(example("Iterable datasets"))["Lines"]
    everything = sorted(f"{number}.{line}" for number, size in enumerate(sizes) for line in range(size))

    def running(workers: int) -> Any:
        dataset = lines([f"{number}.txt" for number in range(len(sizes))])
        return stoker.DataLoader(
            dataset, batch_size=2, num_workers=workers, multiprocessing_context="fork" if workers else None
        )

    for first, then, taken in [
        (4, 2, 1),
        (4, 1, 3),
        (2, 3, 2),
        (3, 0, 6),
        (0, 2, 3),
        (2, 2, 4),
        (4, 3, 7),
        (4, 2, 0),
    ]:
        with running(first) as loader:
            iterator = iter(loader)
            got = [line for _ in range(taken) for line in next(iterator)]
            state = through_json(loader.state_dict())
            del iterator
        with running(then) as loader:
            loader.load_state_dict(state)
            got += [line for batch in loader for line in batch]
            assert sorted(got) == everything, (first, then, taken)
            if first == then:
                assert sorted(line for batch in loader for line in batch) == everything


class Counting(IterableDataset[int]):
    """A stream whose state has a tensor in it, which a checkpoint stores apart."""

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> Iterator[int]:
        while self.at < 20:
            self.at += 1
            yield self.at - 1
        self.at = 0

    def state_dict(self) -> dict[str, Any]:
        return {"at": torch.tensor([self.at])}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at = int(state["at"])


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")
@pytest.mark.parametrize("shuffle", [True, False, None], ids=["shuffled", "in order", "stream"])
def test_distributed_checkpoint(here: Path, shuffle: bool | None) -> None:
    """Into a loader that has not begun, and one in the middle of another epoch: their states have other parts filled."""

    def running() -> Any:
        dataset: Any = Counting() if shuffle is None else range(20)
        return stoker.DataLoader(dataset, batch_size=3, shuffle=shuffle)

    loader = running()
    iterator = iter(loader)
    next(iterator)
    save, load = example("With torch.distributed.checkpoint").strip().rsplit("\n", 1)
    names_of(save, loader=loader)
    rest = [batch.tolist() for batch in iterator]
    begun = running()
    next(iter(begun))
    for other in (running(), begun):
        names_of(f"import torch.distributed.checkpoint as dcp\n{load}", loader=other)
        assert [batch.tolist() for batch in other] == rest


def test_a_data_module() -> None:
    data = names_of(example("With a framework"))["Data"]
    one, other = data(), data()
    one.loader, other.loader = (stoker.DataLoader(range(20), batch_size=3, shuffle=True) for _ in range(2))  # type: ignore[arg-type]
    iterator = iter(one.train_dataloader())
    next(iterator)
    other.load_state_dict(through_json(one.state_dict()))
    assert [batch.tolist() for batch in other.train_dataloader()] == [batch.tolist() for batch in iterator]
