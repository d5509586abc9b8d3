"""Killed in the middle of an epoch, started again, and the batches go on as if nothing had been.

python examples/resume_after_kill.py --folder run --kill-at 30     # SIGKILL after 30 steps
python examples/resume_after_kill.py --folder run --num-workers 0  # goes on, here without workers
python examples/resume_after_kill.py --folder other                # never stopped: the same two digests

The digests are of every batch that was trained on, bit for bit, augmentation included, and of the weights at the end. What
makes them equal is in ``save`` and ``load``: the loader's state beside those of model, optimizer and torch's generator.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset

from stoker import DataLoader

FEATURES = 16


class Noisy(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Points, each time with other noise and turned round at random, as augmentation would."""

    def __init__(self, count: int) -> None:
        self.points = torch.randn(count, FEATURES, generator=torch.Generator().manual_seed(0))

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        sign = random.choice((-1.0, 1.0))
        point = sign * self.points[index] + 0.1 * torch.randn(FEATURES)
        return point, point.sum()


@dataclass
class Run:
    """All that a run is made of: what is saved together, and loaded together."""

    loader: DataLoader[tuple[torch.Tensor, torch.Tensor]]
    model: nn.Module
    optimizer: torch.optim.Optimizer
    epoch: int = 0
    step: int = 0
    digest: str = ""
    """Of all batches so far."""
    path: Path = field(default=Path("run.pt"))

    def save(self) -> None:
        """Write a checkpoint. A kill in the middle of it leaves the one before."""
        state = {
            "epoch": self.epoch,
            "step": self.step,
            "digest": self.digest,
            "loader": self.loader.state_dict(),
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "rng": torch.get_rng_state(),
        }
        unfinished = self.path.with_suffix(".unfinished")
        torch.save(state, unfinished)
        os.replace(unfinished, self.path)

    def load(self) -> None:
        """Become what was saved."""
        state: dict[str, Any] = torch.load(self.path)
        self.epoch, self.step, self.digest = state["epoch"], state["step"], state["digest"]
        self.loader.load_state_dict(state["loader"])
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["rng"])

    def train(self, points: torch.Tensor, values: torch.Tensor) -> None:
        """One step, and the batch into the digest."""
        loss = nn.functional.mse_loss(self.model(points).squeeze(1), values)
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.step += 1
        self.digest = digest_of(self.digest, points, values)


def digest_of(before: str, *tensors: torch.Tensor) -> str:
    """A digest that goes on from one before."""
    found = hashlib.sha256(before.encode())
    for tensor in tensors:
        found.update(tensor.detach().contiguous().numpy().tobytes())
    return found.hexdigest()[:16]


def main() -> None:
    """Train to the end, or until killed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, required=True, help="for the checkpoint")
    parser.add_argument("--samples", type=int, default=640)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--save-every", type=int, default=8, metavar="STEPS")
    parser.add_argument("--kill-at", type=int, metavar="STEP", help="SIGKILL itself after so many steps")
    parser.add_argument("--num-workers", type=int, default=2)
    given = parser.parse_args()

    given.folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(FEATURES, 32), nn.Dropout(0.1), nn.Linear(32, 1))
    run = Run(
        DataLoader(Noisy(given.samples), batch_size=16, shuffle=True, num_workers=given.num_workers),
        model,
        torch.optim.SGD(model.parameters(), lr=1e-3),
        path=given.folder / "run.pt",
    )
    if run.path.exists():
        run.load()
        print(f"going on in epoch {run.epoch} after step {run.step}", flush=True)
    for epoch in range(run.epoch, given.epochs):
        run.epoch = epoch
        for points, values in run.loader:
            run.train(points, values)
            if run.step % given.save_every == 0:
                run.save()
            if run.step == given.kill_at:
                print(f"killed in epoch {run.epoch} after step {run.step}", flush=True)
                os.kill(os.getpid(), signal.SIGKILL)
    print(f"{run.step} steps; batches {run.digest}; weights {digest_of('', *model.parameters())}")
    run.path.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
