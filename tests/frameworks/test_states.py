"""States as Accelerate, the Hugging Face Trainer and ``datasets`` take and load them: torch's batches, weights and lengths."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader as TorchLoader

import stoker
from tests.frameworks.packages import needs
from tests.frameworks.processes import in_fork
from tests.frameworks.samples import Batches, Numbers, numbers

accelerate = needs("accelerate", "accelerate.data_loader")
datasets = needs("datasets")
transformers = needs("transformers")


def prepared_run(workers: int) -> tuple[list[float], Batches, Batches, list[int]]:
    """Weights that are drawn after ``prepare``, two epochs, and one whose first batches are skipped."""
    accelerator = accelerate.Accelerator(cpu=True)
    torch.manual_seed(7)
    loader = accelerator.prepare(TorchLoader(Numbers(22), batch_size=4, shuffle=True, num_workers=workers))
    weights = torch.nn.Linear(2, 2).weight.flatten().tolist()
    whole = [numbers(batch) for _ in range(2) for batch in loader]
    torch.manual_seed(8)
    skipped = [numbers(batch) for batch in accelerate.skip_first_batches(loader, 2)]
    return weights, whole, skipped, torch.get_rng_state().tolist()


@pytest.mark.parametrize("workers", [0, 2])
def test_preparing_a_loader_draws_nothing(workers: int) -> None:
    expected = in_fork(prepared_run, workers)
    assert in_fork(prepared_run, workers, swapped=True) == expected
    assert len(expected[1]) == 12


class Stateful(Numbers):
    """A class with the methods of a state."""

    def state_dict(self) -> dict[str, int]:
        return {"length": self.length}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.length = state["length"]


def class_for_a_dataset() -> Any:
    return accelerate.data_loader.DataLoaderShard(Stateful).state_dict()["dataset_state"]


def test_a_class_can_be_the_dataset() -> None:
    """As in Accelerate's own tests, where ``state_dict()`` missed an argument."""
    assert list(in_fork(class_for_a_dataset, swapped=True)) == [None]


class Notes(torch.nn.Module):
    """Notes its batches."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.trained: Batches = []

    def forward(self, x: Any) -> dict[str, Any]:
        self.trained.append(numbers(x))
        return {"loss": self.layer(x).sum()}


class Rows(Numbers):
    """For the Trainer's collator."""

    def __getitem__(self, index: int) -> Any:
        return {"x": torch.tensor([float(index)])}


def trained(folder: Path, steps: int, resumes: bool) -> Batches:
    """Two epochs of 6 steps, or less, with a checkpoint at every fourth step."""
    torch.manual_seed(1)
    model = Notes()
    arguments = transformers.TrainingArguments(
        output_dir=str(folder), per_device_train_batch_size=4, max_steps=steps, save_steps=4, report_to=[],
        learning_rate=0.0, use_cpu=True, disable_tqdm=True, seed=5, remove_unused_columns=False, logging_strategy="no",
    )  # fmt: skip
    trainer = transformers.Trainer(model=model, args=arguments, train_dataset=Rows(22))
    trainer.train(resume_from_checkpoint=str(folder / "checkpoint-4") if resumes else None)
    return model.trained


def test_the_trainer_resumes_in_mid_epoch(tmp_path: Path) -> None:
    expected = in_fork(trained, tmp_path / "torch", 12, False)
    whole = in_fork(trained, tmp_path / "whole", 12, False, swapped=True)
    legs = in_fork(trained, tmp_path / "legs", 4, False, swapped=True)
    legs += in_fork(trained, tmp_path / "legs", 12, True, swapped=True)
    assert whole == expected
    assert legs == expected


def hub_stream(shuffled: bool, shards: int = 4) -> Any:
    stream = datasets.Dataset.from_dict({"x": list(range(48))}).to_iterable_dataset(num_shards=shards)
    return stream.shuffle(seed=3, buffer_size=5) if shuffled else stream


def hub_epochs(
    shuffled: bool, taken: int, how: dict[str, Any], shards: int = 4
) -> tuple[list[Batches], list[Batches]]:
    """What is left of an epoch and two more, of a loader and of another one that takes its state up."""
    with stoker.DataLoader(hub_stream(shuffled, shards), batch_size=4, **how) as loader:
        iterator = iter(loader)
        for _ in itertools.islice(iterator, taken):
            pass
        state = loader.state_dict()
        expected = [[numbers(batch["x"]) for batch in iterator]]
        expected += [[numbers(batch["x"]) for batch in loader] for _ in range(2)]
    with stoker.DataLoader(hub_stream(shuffled, shards), batch_size=4, **how) as other:
        other.load_state_dict(state)
        return expected, [[numbers(batch["x"]) for batch in other] for _ in range(3)]


@pytest.mark.parametrize("taken", [0, 5, 12])
@pytest.mark.parametrize(
    "how", [{}, {"num_workers": 2}, {"num_workers": 2, "persistent_workers": True}], ids=str
)
def test_epochs_of_a_hub_stream_after_a_resumed_one_are_whole(how: dict[str, Any], taken: int) -> None:
    expected, found = in_fork(hub_epochs, False, taken, how)
    assert [len(each) for each in expected] == [12 - taken, 12, 12]
    assert found == expected


@pytest.mark.parametrize("workers", [0, 2])
def test_a_hub_stream_that_is_set_to_another_epoch_goes_on_in_the_saved_one(workers: int) -> None:
    """Alone it would ignore the state, and begin anew."""

    def legs() -> tuple[Batches, Batches, int]:
        stream, other = hub_stream(False), hub_stream(False)
        with stoker.DataLoader(stream, batch_size=4, num_workers=workers) as loader:
            stream.set_epoch(1)
            iterator = iter(loader)
            for _ in itertools.islice(iterator, 5):
                pass
            state = loader.state_dict()
            expected = [numbers(batch["x"]) for batch in iterator]
        with stoker.DataLoader(other, batch_size=4, num_workers=workers) as loader:
            loader.load_state_dict(state)
            return expected, [numbers(batch["x"]) for batch in loader], other.epoch

    expected, found, epoch = in_fork(legs)
    assert (found, epoch) == (expected, 1)
    assert len(found) == 7


@pytest.mark.parametrize("shards", [2, 4])
@pytest.mark.parametrize("taken", [0, 5, 12])
@pytest.mark.parametrize(
    "how",
    [{}, {"num_workers": 1}, {"num_workers": 2}, {"num_workers": 2, "persistent_workers": True}],
    ids=str,
)
def test_a_shuffled_hub_stream_loses_nothing(how: dict[str, Any], taken: int, shards: int) -> None:
    """The state of ``datasets`` lacks what is in its shuffle buffer, and cannot be loaded with two shards per worker."""
    expected, found = in_fork(hub_epochs, True, taken, how, shards)
    assert [len(each) for each in expected] == [12 - taken, 12, 12]
    assert sorted(itertools.chain(*expected[1])) == list(range(48))
    assert found == expected


def hub_trained(folder: Path, steps: int, after: int, workers: int, shards: int) -> Batches:
    """Three epochs of 12 steps, or less, of a shuffled stream, with a checkpoint at every fourth step. Begins ``after`` one."""
    from stoker.integrations.transformers import LoaderMixin

    class Trainer(LoaderMixin, transformers.Trainer):  # type: ignore[name-defined]
        pass

    torch.manual_seed(1)
    model = Notes()
    arguments = transformers.TrainingArguments(
        output_dir=str(folder), per_device_train_batch_size=4, max_steps=steps, save_steps=4, report_to=[],
        learning_rate=0.0, use_cpu=True, disable_tqdm=True, seed=5, remove_unused_columns=False, logging_strategy="no",
        dataloader_num_workers=workers,
    )  # fmt: skip
    rows = datasets.Dataset.from_dict({"x": [[float(row)] for row in range(48)]}).with_format("torch")
    stream = rows.to_iterable_dataset(num_shards=shards).shuffle(seed=3, buffer_size=5)
    trainer = Trainer(model=model, args=arguments, train_dataset=stream)
    trainer.train(resume_from_checkpoint=str(folder / f"checkpoint-{after}") if after else None)
    return model.trained


@pytest.mark.parametrize(("workers", "shards"), [(0, 4), (1, 2), (2, 4)])
def test_the_trainer_resumes_a_shuffled_hub_stream(tmp_path: Path, workers: int, shards: int) -> None:
    """In the first epoch, in the second, and at its end: each is shuffled otherwise, and the Trainer does not count them."""
    whole = in_fork(hub_trained, tmp_path, 36, 0, workers, shards)
    assert len(whole) == 36
    epochs = [list(itertools.chain(*whole[at : at + 12])) for at in (0, 12, 24)]
    assert [sorted(each) for each in epochs] == [list(range(48))] * 3
    assert epochs[0] != epochs[1] != epochs[2]
    for after in (4, 16, 24):
        assert in_fork(hub_trained, tmp_path, 36, after, workers, shards) == whole[after:]
