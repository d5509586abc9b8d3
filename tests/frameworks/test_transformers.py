"""The Hugging Face Trainer on stoker's loaders, through the mixin and under ``stoker run``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import stoker
from tests.frameworks.packages import needs
from tests.frameworks.processes import in_fork, on_ranks
from tests.frameworks.samples import Batches

transformers = needs(
    "transformers", "transformers.trainer", "stoker.integrations.transformers", "accelerate", "datasets"
)
datasets = needs("datasets")

LENGTH = 26


class Model(torch.nn.Module):
    """Learns nothing and notes its batches."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.seen: Batches = []
        self.validated: Batches = []

    def forward(self, number: Any = None, input_ids: Any = None, **_: Any) -> Any:
        values = number if number is not None else input_ids[:, 0]
        (self.seen if self.training else self.validated).append(
            [int(each) for each in values.flatten().tolist()]
        )
        return {"loss": self.layer(values.float().reshape(-1, 1)).sum()}


READ: list[int] = []
"""Rows of a stream that this process has made."""


def note(row: dict[str, Any]) -> dict[str, Any]:
    """The row as it is."""
    READ.append(row["number"])
    return row


def rows(kind: str) -> Any:
    """Rows whose number says which they are: of Hugging Face's datasets, iterable, or of different lengths."""
    if kind == "lengths":
        return [{"input_ids": torch.full((1 + number % 5,), number)} for number in range(LENGTH)]
    made = datasets.Dataset.from_dict({"number": list(range(LENGTH))})
    return made.to_iterable_dataset(num_shards=2).map(note) if kind == "stream" else made


def collate(samples: list[dict[str, Any]]) -> dict[str, Any]:
    """The first number of each row."""
    return {
        "number": torch.stack([torch.as_tensor(next(iter(each.values()))).flatten()[0] for each in samples])
    }


def train(
    folder: Path, mixed: bool, kind: str = "map", resume: Path | None = None, workers: Any = 1, **options: Any
) -> tuple[Batches, Batches, str]:
    """What was trained on and evaluated, and whose loader it was."""
    base: Any = transformers.Trainer
    if mixed:
        from stoker.integrations.transformers import LoaderMixin

        base = type(
            "Mixed", (LoaderMixin, base), {"loader_options": {"num_workers": workers, "name": "mine"}}
        )
    if kind == "stream":
        options = {"max_steps": 14, **options}
    if kind == "lengths":
        options = {"train_sampling_strategy": "group_by_length", **options}
    made = base(
        model=Model(),
        args=transformers.TrainingArguments(
            str(folder), use_cpu=True, report_to="none", disable_tqdm=True, per_device_train_batch_size=4,
            num_train_epochs=2, save_steps=2, seed=5, dataloader_num_workers=workers if isinstance(workers, int) else 0,
            remove_unused_columns=False, logging_strategy="no", **options,
        ),
        train_dataset=rows(kind),
        eval_dataset=rows("lengths" if kind == "lengths" else "map"),
        data_collator=collate,
    )  # fmt: skip
    made.train(resume_from_checkpoint=None if resume is None else str(resume))
    made.evaluate()
    inner = made.callback_handler.train_dataloader.base_dataloader
    return made.model.seen, made.model.validated, getattr(inner, "name", None) or type(inner).__module__


@pytest.mark.parametrize("workers", [0, 2, "auto"])
def test_the_batches_are_torchs(workers: Any, tmp_path: Path) -> None:
    ours = in_fork(lambda: train(tmp_path / "a", True, workers=workers))
    assert ours[:2] == in_fork(lambda: train(tmp_path / "b", False, workers=0))[:2]
    assert ours[2] == "mine"
    assert len(ours[0]) == 14


@pytest.mark.parametrize("kind", ["map", "stream", "lengths"])
def test_a_training_that_resumes_in_mid_epoch(kind: str, tmp_path: Path) -> None:
    whole, _, name = in_fork(lambda: train(tmp_path, True, kind))
    assert name == "mine"
    step = 4 if kind != "stream" else 2
    rest = in_fork(lambda: train(tmp_path / "again", True, kind, resume=tmp_path / f"checkpoint-{step}"))[0]
    first = rest[: 7 - step]
    assert first == whole[step:7]
    if kind != "lengths":  # each epoch's order is drawn from the global generator, as without stoker
        assert rest == whole[step:]


def test_a_stream_resumes_in_its_second_epoch(tmp_path: Path) -> None:
    """Of which the Trainer does not know, because the stream has no length."""
    whole = in_fork(lambda: train(tmp_path, True, "stream"))[0]
    rest = in_fork(lambda: train(tmp_path / "again", True, "stream", resume=tmp_path / "checkpoint-10"))[0]
    assert rest == whole[10:]


def test_a_stream_is_not_read_again(tmp_path: Path) -> None:
    """Nothing of what was trained on before the checkpoint is made once more."""

    def read(resume: Path | None, **options: Any) -> list[int]:
        train(tmp_path, True, "stream", resume, 0, **options)
        return READ

    whole = in_fork(read, None)
    assert len(whole) == 2 * LENGTH
    rest = in_fork(lambda: read(tmp_path / "checkpoint-4", max_steps=6))
    assert set(rest).isdisjoint(range(4))


def test_two_ranks(tmp_path: Path) -> None:
    ours = on_ranks(2, lambda: train(tmp_path / "a", True))
    torchs = on_ranks(2, lambda: train(tmp_path / "b", False))
    assert [each[:2] for each in ours] == [each[:2] for each in torchs]
    rest = on_ranks(2, lambda: train(tmp_path / "c", True, resume=tmp_path / "a" / "checkpoint-2"))
    assert [each[0] for each in rest] == [each[0][2:] for each in ours]
    alone = in_fork(lambda: train(tmp_path / "d", True, resume=tmp_path / "a" / "checkpoint-2"))
    without = in_fork(lambda: train(tmp_path / "e", False, resume=tmp_path / "b" / "checkpoint-2"))
    assert alone[0] == without[0]  # on another number of ranks it skips batches, as the Trainer does
    assert len(alone[0]) == 12


def test_under_stoker_run_it_resumes_in_mid_epoch(tmp_path: Path) -> None:
    whole = in_fork(lambda: train(tmp_path, False), swapped=True)
    assert whole[2] == stoker.DataLoader.__module__
    assert whole[:2] == in_fork(lambda: train(tmp_path / "b", False))[:2]
    rest = in_fork(lambda: train(tmp_path / "c", False, resume=tmp_path / "checkpoint-4"), swapped=True)
    assert rest[0] == whole[0][4:]
