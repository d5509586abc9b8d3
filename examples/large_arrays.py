"""A dataset that is one large array: batches of 40 MiB, of which torch keeps up to eight in /dev/shm.

python examples/large_arrays.py --engine torch      # dies where /dev/shm is small, as in a container (64 MB)
python examples/large_arrays.py --engine stoker     # works there, under every --method
stoker doctor examples/large_arrays.py:loader       # says both, and that the array could be read lazily
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, Dataset

SIZE = int(os.environ.get("EXAMPLE_SIZE", "100"))


class LargeMemoryDataset(Dataset[Any]):
    """``size`` pictures of 4 MiB, all made in advance."""

    def __init__(self, size: int) -> None:
        self.data = np.random.rand(size, 1024, 1024).astype(np.float32)

    def __len__(self) -> int:
        return int(self.data.shape[0])

    def __getitem__(self, index: int) -> Any:
        return self.data[index]


def loader() -> Any:
    """For the doctor."""
    return DataLoader(LargeMemoryDataset(SIZE), batch_size=10, num_workers=4)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from examples import duel

    duel.run(LargeMemoryDataset(SIZE), __doc__)
