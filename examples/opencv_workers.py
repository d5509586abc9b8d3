"""OpenCV in workers: its own threads in every one of them, more than there are CPUs.

    python examples/opencv_workers.py --engine torch       # OpenCV has as many threads as there are CPUs, in every worker
    python examples/opencv_workers.py --engine stoker      # one thread in each, under every --method
    stoker doctor examples/opencv_workers.py:loader        # counts them

It needs ``pip install opencv-python-headless``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from torch.utils.data import DataLoader, Dataset

# What is often advised. It comes after the import, and OpenCV does not read this name: it changes nothing.
os.environ["OPENCV_OPENMP_NUM_THREADS"] = "1"


class ImageDataset(Dataset[Any]):
    """Small pictures, kept in a list, with their colours in the other order."""

    def __init__(self, size: int) -> None:
        self.data = [np.random.randint(0, 256, size=(100, 100, 3), dtype=np.uint8) for _ in range(size)]

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> Any:
        return cv2.cvtColor(self.data[index], cv2.COLOR_BGR2RGB)


class Counting(ImageDataset):
    """Each picture with the number of threads that OpenCV has where it was made."""

    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index), cv2.getNumThreads()


def threads(batch: Any) -> str:
    """What a batch tells."""
    return f"OpenCV threads in a worker: {int(batch[1].max())}"


def loader() -> Any:
    """For the doctor."""
    return DataLoader(ImageDataset(100), batch_size=10, num_workers=4)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from examples import duel

    duel.run(Counting(100), __doc__, told=threads)
