"""A training loop as a user writes it: the loss does not depend on who makes the batches."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import Dataset

from stoker import DataLoader


class Points(Dataset[tuple[torch.Tensor, float]]):
    """Points near a line, with noise drawn anew every time."""

    def __len__(self) -> int:
        return 500

    def __getitem__(self, index: int) -> tuple[torch.Tensor, float]:
        point = torch.linspace(-1, 1, 8) * (index / 500) + 0.1 * torch.randn(8)
        return point, float(point.sum()) + 0.5


def train(**options: Any) -> list[float]:
    """Loss of every step of three epochs."""
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    with DataLoader(Points(), batch_size=32, shuffle=True, **options) as loader:
        for _ in range(3):
            for points, wanted in loader:
                loss = torch.nn.functional.mse_loss(model(points).squeeze(1), wanted.float())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
    return losses


@pytest.mark.parametrize("persistent", [False, True])
def test_losses_are_the_same_with_and_without_workers(persistent: bool) -> None:
    alone = train()
    assert len(alone) == 48
    assert alone[-1] < alone[0]
    assert train(num_workers=2, persistent_workers=persistent) == alone
