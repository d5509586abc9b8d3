"""A dataset with classic faults, for the act in which the doctor finds them: ``stoker doctor stoker._tools.demo.flawed:loader``.

Most of them show after hours only: in memory, in accuracy or in time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

_LOST = 53
_LARGE = 97
_LARGE_S = 0.02


class Pictures(Dataset[tuple[torch.Tensor, int] | None]):
    """Pictures that nobody has to download, with labels."""

    def __init__(self, count: int) -> None:
        # Python objects: every worker copies them by and by.
        self.rows: list[dict[str, Any]] = [
            {
                "path": f"/data/train/picture_{number:08d}.jpeg",
                "label": number % 100,
                "box": (0, 0, number % 32, 31),
            }
            for number in range(count)
        ]
        # Copied into every worker as it stands: all of them draw the same numbers.
        self.rng = np.random.default_rng(0)
        # No other process can import it.
        self.flip: Callable[[torch.Tensor], torch.Tensor] = lambda picture: picture.flip(-1)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int] | None:
        label: int = self.rows[index]["label"]
        if index % _LOST == 0:
            return None  # a file that cannot be read
        if index % _LARGE == 0:
            time.sleep(_LARGE_S)  # a file that is much larger than the others
        picture = torch.full((3, 32, 32), label, dtype=torch.float32) + float(self.rng.random())
        return self.flip(picture), label


loader = DataLoader(Pictures(300_000), batch_size=64, shuffle=True, num_workers=16)
