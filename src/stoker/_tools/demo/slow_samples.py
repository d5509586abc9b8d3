"""The dataset of the act that kills a worker: samples that wait off the CPU and draw random numbers."""

from __future__ import annotations

import time

import numpy as np
import torch
from torch.utils.data import Dataset


class Paced(Dataset[tuple[int, torch.Tensor]]):
    """A sample is its index and sixteen random numbers, of torch and of numpy: both would give away one that was made otherwise."""

    def __init__(self, samples: int, pause_s: float) -> None:
        self.samples = samples
        self.pause_s = pause_s

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor]:
        if self.pause_s:
            time.sleep(self.pause_s)
        return index, torch.cat([torch.rand(8), torch.from_numpy(np.random.rand(8).astype(np.float32))])
