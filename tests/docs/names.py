"""The names that a block of Python may use without making them, on every page. All are small: a page takes little time."""

from __future__ import annotations

import functools
import itertools
import json
import multiprocessing
import os
import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy
import torch
import torch.utils.data
from torch.utils.data import (
    Dataset,
    DistributedSampler,
    IterableDataset,
    TensorDataset,
    WeightedRandomSampler,
)

import stoker


class Pictures(Dataset[tuple[torch.Tensor, int]]):
    """48 pictures of 3 × 8 × 8 with a label, the same in every process."""

    def __len__(self) -> int:
        return 48

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.full((3, 8, 8), float(index)), index % 10


class Net(torch.nn.Module):
    """A model for ``Pictures``."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3 * 8 * 8, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Ten numbers a picture."""
        scores: torch.Tensor = self.layer(images.flatten(1))
        return scores


class Descent:
    """An optimizer. Making one of torch's imports its compiler, which takes seconds."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.parameters = list(model.parameters())

    def step(self) -> None:
        """Down the slope, and flat again."""
        for each in self.parameters:
            if each.grad is not None:
                each.data -= 0.1 * each.grad
                each.grad = None

    def state_dict(self) -> dict[str, Any]:
        """It has none."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """It has none."""
        assert state == {}


def usual(page: str) -> dict[str, Any]:
    """A page's names before its first block. Checks are about torch's loader, all other pages about stoker's."""
    dataset = Pictures()
    kind: Any = torch.utils.data.DataLoader if page.startswith("docs/checks/") else stoker.DataLoader
    model = Net()
    optimizer = Descent(model)

    def train(*given: Any) -> None:
        """One step: ``train(batch)`` or ``train(model, optimizer, batch)``."""
        images, labels = given[-1]
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    return {
        "DataLoader": kind,
        "Dataset": Dataset,
        "DistributedSampler": DistributedSampler,
        "IterableDataset": IterableDataset,
        "Net": Net,
        "TensorDataset": TensorDataset,
        "ThreadPoolExecutor": ThreadPoolExecutor,
        "WeightedRandomSampler": WeightedRandomSampler,
        "dataset": dataset,
        "ds": dataset,
        "epochs": 2,
        "itertools": itertools,
        "json": json,
        "loader": kind(dataset, batch_size=8),
        "model": model,
        "multiprocessing": multiprocessing,
        "np": numpy,
        "num_workers": 2,
        "numpy": numpy,
        "optimizer": optimizer,
        "os": os,
        "partial": functools.partial,
        "random": random,
        "step": train,
        "stoker": stoker,
        "torch": torch,
        "train": train,
        "train_step": train,
    }
