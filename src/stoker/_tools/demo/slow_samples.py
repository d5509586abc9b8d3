"""The datasets of acts in which workers are killed: samples that wait off the CPU and draw random numbers."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

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


class Deadly(Paced):
    """A sample in the middle kills its worker, as the out-of-memory killer does. Only once: a file remembers it."""

    def __init__(self, samples: int, pause_s: float, mark: str) -> None:
        super().__init__(samples, pause_s)
        self.mark = mark

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor]:
        if index == self.samples // 2 and not os.path.exists(self.mark):
            Path(self.mark).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)
