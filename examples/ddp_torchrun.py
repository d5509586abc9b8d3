"""Data-parallel training: one process per rank, started by torchrun, each with a loader of its own.

torchrun --standalone --nproc-per-node 2 examples/ddp_torchrun.py
torchrun --standalone --nproc-per-node 2 examples/ddp_torchrun.py --sampler torch

``ElasticDistributedSampler`` deals one order of the samples out to the ranks; ``--sampler torch`` is torch's, which has to be
told the epoch. After each epoch the ranks compare: that all samples together came once, and that their models are
the same, bit for bit. One CPU is enough; ranks talk over the loopback device with gloo.
"""

from __future__ import annotations

import argparse
import os
from collections import Counter

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import Dataset, DistributedSampler

from stoker import DataLoader, ElasticDistributedSampler

FEATURES = 8


class Points(Dataset[tuple[int, torch.Tensor, torch.Tensor]]):
    """Points and what a straight line makes of them, with their index, so that ranks can say what they saw."""

    def __init__(self, count: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self.points = torch.randn(count, FEATURES, generator=generator)
        self.values = self.points @ torch.arange(FEATURES, dtype=torch.float32)

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor, torch.Tensor]:
        noise = 0.01 * torch.randn(())  # with rng="sample" the same on any number of ranks
        return index, self.points[index], self.values[index] + noise


def from_all_ranks(value: object) -> list[object]:
    """What each rank has, on every rank."""
    found: list[object] = [None] * dist.get_world_size()
    dist.all_gather_object(found, value)
    return found


def said(text: str) -> None:
    """Printed once, not once per rank."""
    if dist.get_rank() == 0:
        print(text, flush=True)


def check_samples(seen: list[int], count: int) -> None:
    """All ranks together had each sample once; where it does not go round, the last ones once more."""
    shares = [share for share in from_all_ranks(seen) if isinstance(share, list)]
    counts = Counter(index for share in shares for index in share)
    extra = counts.total() - count
    assert len(counts) == count, f"{count - len(counts)} samples came to no rank"
    assert 0 <= extra < len(shares), f"{extra} samples came twice"
    said(
        f"  samples: {' + '.join(str(len(share)) for share in shares)}, each of {count} once, {extra} to fill up"
    )


def check_models(model: nn.Module) -> None:
    """All ranks have the same weights and the same gradients: they were averaged over what each had seen."""
    for parameter in model.parameters():
        assert parameter.grad is not None
        mine = torch.cat([parameter.detach().flatten(), parameter.grad.flatten()])
        for theirs in from_all_ranks(mine):
            assert isinstance(theirs, torch.Tensor)
            assert torch.equal(mine, theirs), "the ranks have drifted apart"
    said("  weights and gradients are the same on all ranks")


def train(points: Points, sampler: DistributedSampler[int], epochs: int, workers: int) -> None:
    """Some epochs on every rank, each with its comparison."""
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(FEATURES, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(
        points,
        batch_size=32,
        sampler=sampler,
        num_workers=workers,
        persistent_workers=workers > 0,
        rng="sample",
    )
    with loader:
        for epoch in range(epochs):
            # torch's needs it; the elastic one goes on by itself and is content with it.
            sampler.set_epoch(epoch)
            seen: list[int] = []
            for indices, features, values in loader:
                loss = nn.functional.mse_loss(model(features).squeeze(1), values)
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                seen += indices.tolist()
            said(f"{type(sampler).__name__}, epoch {epoch}: loss {loss.item():.4f} on rank 0")
            check_samples(seen, len(points))
            check_models(model)


def main() -> None:
    """Train with one sampler, or one after the other."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=1001)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--sampler", choices=("elastic", "torch"), nargs="+", default=["elastic"])
    parser.add_argument("--num-workers", type=int, default=1, help="of each rank")
    given = parser.parse_args()
    if "RANK" not in os.environ:
        parser.error("start it with torchrun: torchrun --standalone --nproc-per-node 2 ddp_torchrun.py")

    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # all ranks are on this machine
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    points = Points(given.samples)
    for name in given.sampler:
        sampler: DistributedSampler[int]
        if name == "elastic":
            sampler = ElasticDistributedSampler(points, shuffle=True, seed=7)
        else:
            sampler = DistributedSampler(points, shuffle=True, seed=7)
        train(points, sampler, given.epochs, given.num_workers)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
