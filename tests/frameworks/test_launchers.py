"""``stoker run`` with launchers: every rank's loaders are stoker's, and their records come together in one summary."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from stoker._record import journal
from tests.frameworks.packages import needs
from tests.warm import environment

needs("torch")

BOUND_S = 140
"""How long a launcher may take; it only bounds a failure."""

PLAIN = """
import torch
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
torch.distributed.init_process_group("gloo")
data = TensorDataset(torch.arange(16.0))
print(sum(1 for _ in DataLoader(data, batch_size=2, sampler=DistributedSampler(data), num_workers=1)), flush=True)
torch.distributed.destroy_process_group()
"""

ACCELERATE = """
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset
accelerator = Accelerator(cpu=True)
loader = accelerator.prepare(DataLoader(TensorDataset(torch.arange(16.0)), batch_size=2, shuffle=True, num_workers=1))
print(sum(1 for _ in loader), flush=True)
accelerator.end_training()
"""

LIGHTNING = """
import lightning, torch
from torch.utils.data import DataLoader, TensorDataset

class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
    def training_step(self, batch, _):
        return self.layer(batch[0][:, None]).sum()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.0)
    def train_dataloader(self):
        return DataLoader(TensorDataset(torch.arange(16.0)), batch_size=2, shuffle=True, num_workers=1)

lightning.Trainer(
    max_epochs=1, accelerator="cpu", devices=2, strategy="ddp", logger=False, enable_progress_bar=False,
    enable_checkpointing=False, enable_model_summary=False,
).fit(Model())
"""

FABRIC = """
import lightning, torch
from torch.utils.data import DataLoader, TensorDataset

fabric = lightning.Fabric(accelerator="cpu", devices=2, strategy="ddp")
fabric.launch()
loader = fabric.setup_dataloaders(DataLoader(TensorDataset(torch.arange(16.0)), batch_size=2, shuffle=True, num_workers=1))
assert sum(1 for _ in loader) == 4
fabric.barrier()
"""

RAY = """
import sys
import ray
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, prepare_data_loader

def loop(config):
    import torch
    from torch.utils.data import DataLoader, TensorDataset
    data = TensorDataset(torch.arange(16.0))
    assert sum(1 for _ in prepare_data_loader(DataLoader(data, batch_size=2, shuffle=True, num_workers=1))) == 4

from tests.ray.turns import starting
with starting():
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
TorchTrainer(loop, scaling_config=ScalingConfig(num_workers=2), run_config=RunConfig(storage_path=sys.argv[1])).fit()
ray.shutdown()
"""

LAUNCHED = {
    "torchrun": (
        PLAIN,
        ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py"],
    ),
    "accelerate": (
        ACCELERATE,
        [
            "-m",
            "accelerate.commands.launch",
            "--multi_gpu",
            "--num_processes",
            "2",
            "--main_process_port",
            "0",
            "train.py",
        ],
    ),
    "lightning": (LIGHTNING, ["train.py"]),
    "fabric": (FABRIC, ["train.py"]),
    "ray": (RAY, ["train.py", "storage"]),
}


@pytest.mark.slow
@pytest.mark.timeout(145)
@pytest.mark.parametrize("launcher", LAUNCHED)
def test_every_rank_is_followed(launcher: str, tmp_path: Path) -> None:
    needs({"torchrun": "torch", "fabric": "lightning"}.get(launcher, launcher))
    script, words = LAUNCHED[launcher]
    (tmp_path / "train.py").write_text(script)
    words = [str(tmp_path / "storage") if each == "storage" else each for each in words]
    ran = subprocess.run(
        [sys.executable, "-m", "stoker", "run", "-o", "run.json", *words],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment(RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0", HF_HUB_OFFLINE="1"),
        timeout=BOUND_S,
    )
    assert ran.returncode == 0, ran.stderr
    found = sorted(
        (each.engine, each.totals.steps, each.name[-6:])
        for each in journal.read(tmp_path / "run.json").loaders
    )
    assert found == [("stoker", 4, "rank 0"), ("stoker", 4, "rank 1")], ran.stderr
    assert "Ranks     0  4 batches by stoker's engine" in ran.stderr
