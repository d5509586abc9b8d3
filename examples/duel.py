"""What the examples share: one loader of torch's or stoker's, and a loop over it."""

from __future__ import annotations

import argparse
from typing import Any

import torch.utils.data

import stoker

METHODS = ("fork", "spawn", "forkserver")


def loader_of(dataset: Any, engine: str, method: str | None, num_workers: int = 4) -> Any:
    """The loader of the seed text: batches of ten. ``engine`` is "torch" or "stoker", ``method`` how workers are started."""
    kind: Any = stoker.DataLoader if engine == "stoker" else torch.utils.data.DataLoader
    return kind(dataset, batch_size=10, num_workers=num_workers, multiprocessing_context=method)


def run(dataset: Any, description: str | None) -> None:
    """Read the command line, go over the dataset once, and say how many batches came."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--engine", choices=("torch", "stoker"), default="torch")
    parser.add_argument("--method", choices=METHODS, default="fork", help="how workers are started")
    parser.add_argument("--num-workers", type=int, default=4)
    given = parser.parse_args()
    batches = sum(1 for _ in loader_of(dataset, given.engine, given.method, given.num_workers))
    print(f"{batches} batches with {given.engine}'s loader under {given.method}")
