"""``device=`` inside frameworks: batches arrive on the device in one copy, and the framework makes no second one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.torch_version import TorchVersion

import stoker
from tests import fake_device
from tests.frameworks import accelerator
from tests.frameworks.accelerator import NAME
from tests.frameworks.packages import needs
from tests.frameworks.processes import in_fork
from tests.frameworks.samples import Batches, Numbers, flat, numbers

L = needs("lightning")
accelerate = needs("accelerate")
transformers = needs("transformers", "transformers.trainer", "stoker.integrations.transformers")

LENGTH, BATCH, STEPS = 26, 4, 7
ALL = list(range(LENGTH))
Seen = tuple[Batches, list[int], list[int], dict[str, Any]]


@pytest.fixture(autouse=True)
def _compiled() -> None:
    """Here, and not in the child, whose time is bounded."""
    if TorchVersion(torch.__version__) < TorchVersion("2.13"):
        pytest.skip("the fake accelerator needs torch 2.13 or newer")
    fake_device.library()


def check(seen: Seen, epochs: int = 1) -> None:
    """All samples came, from the memory that the loader filled, with one copy a batch."""
    batches, filled, used, stats = seen
    assert sorted(flat(batches)) == sorted(ALL * epochs)
    assert used == filled
    assert len(used) == epochs * STEPS
    assert (stats["memory"], stats["batches"]) == ("registered", len(used))
    assert stats["copies"] == len(used)


def loader(**options: Any) -> Any:
    """Brings its batches to the device itself."""
    return stoker.DataLoader(
        Numbers(LENGTH), batch_size=BATCH, shuffle=True, num_workers=1, device=NAME, **options
    )


def lightning_accelerator() -> Any:
    """As Lightning wants to know a device."""

    class FakeAccelerator(L.pytorch.accelerators.Accelerator):  # type: ignore[name-defined]
        def setup_device(self, device: torch.device) -> None:
            return None

        def teardown(self) -> None:
            return None

        def get_device_stats(self, device: Any) -> dict[str, Any]:
            return {}

        @staticmethod
        def parse_devices(devices: Any) -> Any:
            return devices

        @staticmethod
        def get_parallel_devices(devices: Any) -> list[torch.device]:
            return [torch.device(NAME, 0)]

        @staticmethod
        def auto_device_count() -> int:
            return 1

        @staticmethod
        def is_available() -> bool:
            return True

        @staticmethod
        def name() -> str:
            return NAME

    return FakeAccelerator()


def lightning_fit() -> Seen:
    """Two epochs of a model on the device."""
    handed = accelerator.load()
    seen: Batches = []

    class Model(L.LightningModule):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def training_step(self, batch: Any, _: int) -> Any:
            handed.note(batch)
            seen.append(numbers(batch.cpu()))
            return self.layer(batch).sum()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.0)

    device = lightning_accelerator()
    strategy = L.pytorch.strategies.SingleDeviceStrategy(torch.device(NAME, 0), accelerator=device)
    made = loader()
    L.Trainer(
        strategy=strategy, devices=1, logger=False, enable_progress_bar=False, max_epochs=2,
        enable_model_summary=False, enable_checkpointing=False,
    ).fit(Model(), made)  # fmt: skip
    return seen, handed.filled, handed.used, made.stats()["device"]


def test_lightning() -> None:
    check(in_fork(lightning_fit), epochs=2)


def fabric_steps() -> Seen:
    """One epoch through Fabric's wrapper."""
    handed = accelerator.load()
    device = torch.device(NAME, 0)
    fabric = L.Fabric(accelerator="cpu", devices=1)
    fabric._strategy._root_device = device
    made = loader()
    seen: Batches = []
    for batch in fabric.setup_dataloaders(made):
        handed.note(batch)
        seen.append(numbers(batch.cpu()))
    return seen, handed.filled, handed.used, made.stats()["device"]


def test_fabric() -> None:
    check(in_fork(fabric_steps))


def accelerate_steps(there: str) -> tuple[Seen, Batches]:
    """One epoch with Accelerate on the device, or on the CPU; then the rest of one after two batches."""
    handed = accelerator.load()
    os.environ["ACCELERATE_TORCH_DEVICE"] = there
    from stoker.integrations.accelerate import keep

    acc = keep(accelerate.Accelerator())
    assert str(acc.device) == there
    prepared = acc.prepare(loader())
    seen: Batches = []
    for batch in prepared:
        handed.note(batch)
        seen.append(numbers(batch.cpu()))
    found = seen, list(handed.filled), list(handed.used), prepared.base_dataloader.stats()["device"]
    skipped = list(acc.skip_first_batches(prepared, 2))
    assert {batch.device.type for batch in skipped} == {NAME}
    return found, [numbers(batch.cpu()) for batch in skipped]


@pytest.mark.parametrize("there", [f"{NAME}:0", "cpu"])
def test_accelerate(there: str) -> None:
    found, skipped = in_fork(accelerate_steps, there)
    check(found)
    assert len(skipped) == STEPS - 2


def trainer_steps(folder: Path) -> Seen:
    """One epoch of the Trainer with a model on the device."""
    handed = accelerator.load()
    os.environ["ACCELERATE_TORCH_DEVICE"] = f"{NAME}:0"
    from stoker.integrations.transformers import LoaderMixin

    seen: Batches = []

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def forward(self, x: Any) -> Any:
            handed.note(x)
            seen.append(numbers(x.cpu()))
            return {"loss": self.layer(x).sum()}

    class Rows(Numbers):
        def __getitem__(self, index: int) -> Any:
            return {"x": torch.tensor([float(index)])}

    class Mixed(LoaderMixin, transformers.Trainer):  # type: ignore[name-defined]
        loader_options = {"num_workers": 1, "device": NAME}  # noqa: RUF012

    arguments = transformers.TrainingArguments(
        output_dir=str(folder), per_device_train_batch_size=BATCH, num_train_epochs=1, report_to=[], learning_rate=0.0,
        disable_tqdm=True, remove_unused_columns=False, logging_strategy="no", save_strategy="no", max_grad_norm=0.0,
    )  # fmt: skip
    made = Mixed(model=Model(), args=arguments, train_dataset=Rows(LENGTH))
    assert str(made.args.device) == f"{NAME}:0"
    made.train()
    inner = made.callback_handler.train_dataloader.base_dataloader
    return seen, handed.filled, handed.used, inner.stats()["device"]


def test_the_trainer(tmp_path: Path) -> None:
    check(in_fork(trainer_steps, tmp_path))
