"""`stoker run` with a framework: an unmodified script of Lightning or Accelerate, whose workers are killed while it trains.

The script writes down what its training step was given. That is compared with what torch's own loader gives without workers, and
the receipts that ``STOKER_RECORD`` keeps are verified, where there are any. A fault is a worker that was killed, or killed itself.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import psutil
import torch
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

from tests.soak.account import Account
from tests.soak.accounting import accounted, verified
from tests.warm import environment

ROWS, BATCH, EPOCHS = 240, 4, 3
_APART = 6
"""Batches between two kills. There are four at work: none may kill more workers than ``restarts`` allows, which a script of
torch's loader has not set.
"""

_COMMON = """
import json, os, signal, sys, time, torch
from torch.utils.data import DataLoader, Dataset, get_worker_info
from pathlib import Path
folder, seed = Path(sys.argv[1]), int(sys.argv[2])
class Given(list):
    def append(self, batch):
        super().append(batch)
        (folder / "progress").write_text(str(len(self)))
given = Given()
class Data(Dataset):
    def __len__(self):
        return ROWS
    def __getitem__(self, index):
        time.sleep(0.002)
        if index == 17 and get_worker_info() is not None:
            try:
                (folder / "died").touch(exist_ok=False)
            except FileExistsError:
                pass
            else:
                os.kill(os.getpid(), signal.SIGKILL)
        return torch.tensor(float(index))
torch.manual_seed(seed)
def loader():
    return DataLoader(Data(), batch_size=BATCH, shuffle=True, num_workers=2, generator=torch.Generator().manual_seed(seed))
"""

SCRIPTS = {
    "lightning": """
import lightning
class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
    def training_step(self, batch, _):
        given.append(batch.tolist())
        return self.layer(batch[:, None]).sum()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.0)
lightning.Trainer(
    max_epochs=EPOCHS, accelerator="cpu", logger=False, enable_progress_bar=False, enable_checkpointing=False,
    enable_model_summary=False,
).fit(Model(), loader())
""",
    "accelerate": """
from accelerate import Accelerator
accelerator = Accelerator(cpu=True)
prepared = accelerator.prepare(loader())
for _ in range(EPOCHS):
    for batch in prepared:
        given.append(batch.tolist())
""",
}
_SETTINGS = {"HF_HUB_OFFLINE": "1", "STOKER_RECORD": "records"}
_END = '\n(folder / "given.json").write_text(json.dumps(given))\n'


def unable() -> str:
    """Which of the packages are missing."""
    missing = [name for name in SCRIPTS if importlib.util.find_spec(name) is None]
    return f"not installed: {', '.join(missing)}" if missing else ""


def play(seed: int) -> Account:
    """Play the scenario of this seed."""
    account = Account(seed)
    dice = Random(seed)
    name = dice.choice(list(SCRIPTS))
    account.where = account.title = name
    with accounted(account) as folder:
        _play(account, dice, name, folder)
    return account


def _play(account: Account, dice: Random, name: str, folder: Path) -> None:
    seed = dice.randrange(1000)
    constants = f"ROWS, BATCH, EPOCHS = {ROWS}, {BATCH}, {EPOCHS}\n"
    (folder / "train.py").write_text(constants + _COMMON + SCRIPTS[name] + _END)
    words = [sys.executable, "-m", "stoker", "run", "-o", "run.json", "train.py", str(folder), str(seed)]
    with (folder / "said").open("w") as said:
        process = subprocess.Popen(
            words, cwd=folder, stdout=said, stderr=said, env=environment(**_SETTINGS, TMPDIR=str(folder))
        )
        killed_at = 0
        while process.poll() is None:
            time.sleep(dice.uniform(0.02, 0.2))
            progress = _progress(folder)
            if progress >= killed_at + _APART and _kill_worker(process.pid, dice, account):
                killed_at = progress
    account.faults["framework: worker died"] += (folder / "died").exists()
    if process.returncode != 0:
        account.find("raised", f"exit code {process.returncode}\n{(folder / 'said').read_text()[-2000:]}")
        return
    given = json.loads((folder / "given.json").read_text())
    account.batches += len(given)
    expected = _expected(seed)
    if given != expected:
        kind = "lost" if len(given) < len(expected) else "altered"
        account.find(kind, f"{len(given)} batches, {len(expected)} expected")
    receipts = sorted((folder / "records").rglob("*.receipt"))
    if receipts:  # `stoker run -o` alone keeps none
        verified(account, *receipts)


def _progress(folder: Path) -> int:
    """How many batches the script was given; 0 while it writes that down."""
    try:
        return int((folder / "progress").read_text() or 0)
    except OSError:
        return 0


def _kill_worker(pid: int, dice: Random, account: Account) -> bool:
    """Kill a process that the loader named as a worker: its threads have that name, and no other child's. Whether it did."""
    try:
        below = psutil.Process(pid).children(recursive=True)
        workers = [each for each in below if Path(f"/proc/{each.pid}/comm").read_text().startswith("stoker")]
    except (psutil.Error, OSError):
        return False
    if not workers:
        return False
    os.kill(dice.choice(workers).pid, 9)
    account.faults["framework: SIGKILL"] += 1
    return True


def _expected(seed: int) -> list[list[float]]:
    """What torch's loader gives without workers."""
    data = TensorDataset(torch.arange(ROWS).float())
    generator = torch.Generator().manual_seed(seed)
    loader = DataLoader(
        data, batch_size=BATCH, sampler=RandomSampler(data, generator=generator), generator=generator
    )
    return [batch[0].tolist() for _ in range(EPOCHS) for batch in loader]
