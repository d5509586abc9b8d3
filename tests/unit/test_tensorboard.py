"""TensorBoard scalars: what happened since the call before, to any writer, and in a real file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import Dataset

from stoker import DataLoader
from stoker.exports import tensorboard


class Numbers(Dataset[int]):
    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> int:
        return index


class Notebook:
    def __init__(self) -> None:
        self.scalars: dict[tuple[str, int], float] = {}

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        self.scalars[tag, step] = float(value)

    def at(self, step: int) -> dict[str, float]:
        return {tag: value for (tag, at), value in self.scalars.items() if at == step}


def test_each_call_tells_of_the_time_since_the_one_before() -> None:
    loader: Any = DataLoader(Numbers(12), batch_size=2, name="train")
    writer = Notebook()
    batches = iter(loader)
    tensorboard.log(writer, loader, 0)
    assert writer.at(0) == {}, "nothing was handed over yet"
    for step in (1, 2):
        for _ in range(step):
            next(batches)
        tensorboard.log(writer, loader, step)
    first, second = writer.at(1), writer.at(2)
    assert {"stoker/train/stall", "stoker/train/ready", "stoker/train/restarts"} <= set(second)
    causes = [value for tag, value in second.items() if tag.startswith("stoker/train/wait_ms_")]
    assert sum(causes) == pytest.approx(second["stoker/train/wait_ms"], rel=0.01)
    assert first["stoker/train/bad_samples"] == 0
    tensorboard.log(writer, loader, 3)
    assert set(writer.at(3)) <= {f"stoker/train/{name}" for name in ("restarts", "bad_samples", "stalls")}


def test_prefixes_are_apart() -> None:
    loader: Any = DataLoader(Numbers(4), name="train")
    writer = Notebook()
    list(loader)
    tensorboard.log(writer, loader, 7, prefix="a")
    tensorboard.log(writer, loader, 7, prefix="b")
    assert writer.scalars["a/train/batches_per_s", 7] == writer.scalars["b/train/batches_per_s", 7]


def test_without_a_record_nothing_is_written() -> None:
    loader: Any = DataLoader(Numbers(4), record=False)
    writer = Notebook()
    list(loader)
    tensorboard.log(writer, loader, 1)
    assert writer.scalars == {}


def test_what_cannot_be_written_to_is_named() -> None:
    with pytest.raises(TypeError, match=r"pip install tensorboard.*not to a PosixPath"):
        tensorboard.log(Path("runs"), DataLoader(Numbers(1)), 0)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_real_file_has_them(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    loader: Any = DataLoader(Numbers(6), name="train")
    with SummaryWriter(str(tmp_path)) as writer:
        list(loader)
        tensorboard.log(writer, loader, 5)
    written: Any = EventAccumulator(os.fspath(tmp_path))
    written.Reload()
    [event] = written.Scalars("stoker/train/stall")
    assert event.step == 5
    assert 0 <= event.value <= 1
