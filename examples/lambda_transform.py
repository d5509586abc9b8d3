"""A transform that is a lambda: torch can fork workers with it, and cannot start them in any other way.

python examples/lambda_transform.py --engine torch --method spawn      # Can't pickle local object
python examples/lambda_transform.py --engine stoker --method spawn     # works, under every --method
stoker doctor examples/lambda_transform.py:loader                      # names dataset.transform
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader, Dataset


class BadPickleDataset(Dataset[Any]):
    """Numbers, each times a random one."""

    def __init__(self, size: int) -> None:
        self.data = list(range(size))
        self.transform: Any = lambda x: x * random.random()

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> Any:
        return self.transform(self.data[index])


def loader() -> Any:
    """For the doctor."""
    return DataLoader(BadPickleDataset(100), batch_size=10, num_workers=4)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from examples import duel

    duel.run(BadPickleDataset(100), __doc__)
