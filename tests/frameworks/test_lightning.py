"""Lightning's Trainer and Fabric with loaders of stoker's, against the same Trainer with torch's."""

from __future__ import annotations

import functools
import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader as TorchLoader

import stoker
from tests.frameworks.packages import needs
from tests.frameworks.processes import in_fork, on_ranks
from tests.frameworks.samples import Batches, Numbers, NumberStream, flat, numbers
from tests.warm import environment

L = needs("lightning")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
logging.getLogger("lightning.fabric").setLevel(logging.ERROR)

LENGTH = 26
BATCH = 4


class Seen(L.LightningModule):  # type: ignore[name-defined]
    """A model that learns nothing and notes its batches."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.trained: Batches = []
        self.validated: Batches = []

    def training_step(self, batch: Any, _: int) -> Any:
        self.trained.append(numbers(batch))
        return self.layer(batch).sum()

    def validation_step(self, batch: Any, _: int) -> None:
        self.validated.append(numbers(batch))

    def predict_step(self, batch: Any, batch_idx: int) -> Any:
        return batch

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), 0.0)


def trainer(folder: Path | None = None, **more: Any) -> Any:
    """A quiet one on the CPU. With a folder it writes a checkpoint every second step."""
    options: dict[str, Any] = {
        "accelerator": "cpu", "devices": 1, "logger": False, "enable_progress_bar": False,
        "enable_model_summary": False, "enable_checkpointing": folder is not None, "max_epochs": 2,
    }  # fmt: skip
    if folder is not None:
        save = L.pytorch.callbacks.ModelCheckpoint(folder, "{step}", save_top_k=-1, every_n_train_steps=2)
        options["callbacks"] = [save]
    return L.Trainer(**{**options, **more})


def loader(cls: Any, data: Any = None, **more: Any) -> Any:
    """Shuffled, unless it is a stream."""
    data = Numbers(LENGTH) if data is None else data
    order = {} if isinstance(data, NumberStream) else {"shuffle": True}
    return cls(data, batch_size=BATCH, **order, **more)


def fit(cls: Any, stream: bool, workers: Any) -> tuple[Batches, Batches]:
    """Two epochs, each with a validation."""
    torch.manual_seed(5)
    data = NumberStream(LENGTH) if stream else Numbers(LENGTH)
    model = Seen()
    trained = loader(cls, data, num_workers=workers)
    trainer(num_sanity_val_steps=1).fit(model, trained, cls(Numbers(6), batch_size=BATCH))
    return model.trained, model.validated


@pytest.mark.parametrize("workers", [0, 2, "auto"])
@pytest.mark.parametrize("stream", [False, True])
def test_fit_and_validate_give_torchs_batches(workers: Any, stream: bool) -> None:
    trained, validated = in_fork(fit, stoker.DataLoader, stream, workers)
    expected = in_fork(fit, TorchLoader, stream, 0 if workers == "auto" else workers)
    assert len(validated) == 5
    if stream and workers == "auto":  # which worker reads which part is then "auto"'s business
        assert sorted(flat(trained)) == sorted(flat(expected[0]))
    else:
        assert (trained, validated) == expected


def predictions(cls: Any, workers: Any) -> tuple[Batches, Any]:
    """What ``predict`` returns, and which samples it says each batch had. It reads through a batch sampler of Lightning's."""
    said: list[Any] = []

    class Note(L.pytorch.callbacks.BasePredictionWriter):  # type: ignore[name-defined]
        def write_on_batch_end(self, *given: Any) -> None:
            said.append(given[3])

    made = cls(Numbers(10), batch_size=3, num_workers=workers)
    found = trainer(callbacks=[Note("batch")]).predict(Seen(), made)
    return [numbers(batch) for batch in found], said


@pytest.mark.parametrize("workers", [0, 2, "auto"])
def test_predict_gives_every_sample(workers: Any) -> None:
    ours = in_fork(predictions, stoker.DataLoader, workers)
    assert ours == in_fork(predictions, TorchLoader, 0)
    assert ours[0] == ours[1] == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]


def resumed(folder: Path, data: Any, cls: Any) -> tuple[Batches, Batches]:
    """An uninterrupted run, and the same run in two legs, of which the first ends after 4 steps."""
    parts = []
    for number, last in enumerate((-1, 4, -1)):
        model = Seen()
        place = folder / str(min(number, 1))
        first = place / "step=4.ckpt" if number == 2 else None
        own = torch.Generator().manual_seed(
            5
        )  # its state is part of the loader's; the global generator's is not
        made = loader(cls, data, num_workers=(1, 2, 0)[number], generator=own)
        trainer(place, max_steps=last).fit(model, made, ckpt_path=first, weights_only=False)
        parts.append(model.trained)
    return parts[0], parts[1] + parts[2]


def test_a_resume_in_mid_epoch_goes_on_with_any_number_of_workers(tmp_path: Path) -> None:
    whole, legs = in_fork(resumed, tmp_path / "ours", Numbers(LENGTH), stoker.DataLoader)
    assert len(whole) == 14
    assert legs == whole
    whole, legs = in_fork(resumed, tmp_path / "swapped", Numbers(LENGTH), TorchLoader, swapped=True)
    assert legs == whole


class Elastic(L.LightningDataModule):  # type: ignore[name-defined]
    """Makes the loader when the process group is there: its sampler asks for the rank."""

    def train_dataloader(self) -> Any:
        data = Numbers(24)
        sampler = stoker.ElasticDistributedSampler(data, seed=3)
        return stoker.DataLoader(data, batch_size=2, sampler=sampler, num_workers=1)


def elastic_leg(folder: Path, last: int, first: Path | None) -> Batches:
    """What this rank is given."""
    model = Seen()
    ranks = int(os.environ["WORLD_SIZE"])
    made = trainer(
        folder, strategy="ddp", devices=ranks, use_distributed_sampler=False, max_epochs=1, max_steps=last
    )
    made.fit(model, Elastic(), ckpt_path=first, weights_only=False)
    return model.trained


@pytest.mark.parametrize("then", [2, 1])
def test_two_ranks_resume_on_as_many_or_another_number(tmp_path: Path, then: int) -> None:
    first = on_ranks(2, elastic_leg, tmp_path, 4, None)
    assert [len(each) for each in first] == [4, 4]
    rest = on_ranks(then, elastic_leg, tmp_path / "second", -1, tmp_path / "step=4.ckpt")
    seen = [number for rank in (*first, *rest) for batch in rank for number in batch]
    assert sorted(seen) == list(range(24))


def injected(cls: Any, workers: Any) -> tuple[Batches, Batches, str, Any]:
    """One rank's batches where Lightning puts a DistributedSampler into the loader."""
    torch.manual_seed(5)
    model = Seen()
    made = trainer(strategy="ddp", devices=2)
    made.fit(
        model,
        loader(cls, num_workers=workers, persistent_workers=workers != 0),
        cls(Numbers(8), batch_size=2, num_workers=workers),
    )
    used = made.train_dataloader
    return model.trained, model.validated, type(used.sampler).__name__, getattr(used, "executor", None)


@pytest.mark.parametrize("workers", [2, "auto"])
def test_sampler_injection_on_two_ranks(workers: Any) -> None:
    thread = functools.partial(stoker.DataLoader, executor="thread")
    expected = on_ranks(2, injected, TorchLoader, 0)
    ours = on_ranks(2, injected, thread, workers)
    assert [each[:3] for each in ours] == [each[:3] for each in expected]
    assert [each[3] for each in ours] == ["thread", "thread"]


def fabric_batches(cls: Any) -> tuple[Batches, str]:
    """One rank's batches of two epochs."""
    torch.manual_seed(5)
    fabric = L.Fabric(accelerator="cpu", devices=2, strategy="ddp")
    fabric.launch()
    made = fabric.setup_dataloaders(loader(cls, num_workers=1))
    seen = []
    for epoch in range(2):
        made.sampler.set_epoch(epoch)
        seen += [numbers(batch) for batch in made]
    return seen, type(made._dataloader).__module__


def test_fabric_on_two_ranks() -> None:
    ours = on_ranks(2, fabric_batches, stoker.DataLoader)
    assert [each[0] for each in ours] == [each[0] for each in on_ranks(2, fabric_batches, TorchLoader)]
    assert {each[1] for each in ours} == {"stoker.loader"}


LAZY = """
import json, sys, warnings
warnings.simplefilter("ignore")
import lightning, torch
from tests.frameworks.samples import Numbers, numbers

class Lazy(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.seen = []
    def training_step(self, batch, _):
        self.seen.append(numbers(batch))
        return self.layer(batch).sum()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.0)
    def train_dataloader(self):
        assert "stoker.loader" not in sys.modules or self.again
        from stoker import DataLoader
        return DataLoader(Numbers(16), batch_size=4, shuffle=True, num_workers=1, executor="thread", name="mine")

told = []
for number, options in enumerate(({"overfit_batches": 2}, {"strategy": "ddp"})):
    torch.manual_seed(1)
    model = Lazy()
    model.again = number > 0
    trainer = lightning.Trainer(max_epochs=1, accelerator="cpu", devices=1, logger=False, enable_progress_bar=False,
                                enable_checkpointing=False, enable_model_summary=False, **options)
    trainer.fit(model)
    used = trainer.train_dataloader
    told.append([type(used).__module__, type(used.sampler).__name__, used.executor, used.name, model.seen])
print(json.dumps(told))
"""


def lazily(*words: str) -> list[Any]:
    """What the script says of the loader that Lightning built for ``overfit_batches``, and of the one with its sampler."""
    ran = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, env=environment(), check=False
    )
    assert ran.returncode == 0, ran.stderr
    found: list[Any] = json.loads(next(line for line in ran.stdout.splitlines() if line.startswith("[[")))
    return found


def test_the_class_may_be_imported_inside_the_hook() -> None:
    """Lightning has recorded nothing of a class that it did not know when it called the hook."""
    overfit, injected_ = lazily("-c", LAZY)
    assert overfit == ["stoker.loader", "SequentialSampler", "thread", "mine", [[0, 1, 2, 3], [4, 5, 6, 7]]]
    assert injected_[:4] == ["stoker.loader", "DistributedSampler", "thread", "mine"]
    assert sorted(flat(injected_[4])) == list(range(16))


def test_under_stoker_run_too(tmp_path: Path) -> None:
    script = LAZY.replace("from stoker import DataLoader", "from torch.utils.data import DataLoader")
    script = script.replace(', executor="thread", name="mine"', "").replace(
        "        assert", "        # assert"
    )
    (tmp_path / "train.py").write_text(script)
    record = str(tmp_path / "run.json")
    overfit, injected_ = lazily("-m", "stoker", "run", "-q", "-o", record, str(tmp_path / "train.py"))
    for sampler, found in (("SequentialSampler", overfit), ("DistributedSampler", injected_)):
        assert found[0].startswith("stoker.")
        assert found[1] == sampler
    assert overfit[4] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert sorted(flat(injected_[4])) == list(range(16))
