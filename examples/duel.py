"""What the examples share: one loader of torch's or stoker's, and a loop over it."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import torch.utils.data

import stoker

METHODS = ("fork", "spawn", "forkserver")


def loader_of(dataset: Any, engine: str, method: str | None, num_workers: int = 4) -> Any:
    """The loader of the seed text: batches of ten. ``engine`` is "torch" or "stoker", ``method`` how workers are started."""
    kind: Any = stoker.DataLoader if engine == "stoker" else torch.utils.data.DataLoader
    return kind(dataset, batch_size=10, num_workers=num_workers, multiprocessing_context=method)


def nothing(batch: Any) -> str:
    """What most batches tell."""
    return ""


def run(dataset: Any, description: str | None, told: Callable[[Any], str] = nothing) -> None:
    """Read the command line, go over the dataset once, and say how many batches came, and what the last one ``told``."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--engine", choices=("torch", "stoker"), default="torch", help="whose DataLoader")
    parser.add_argument("--method", choices=METHODS, default="fork", help="how workers are started")
    parser.add_argument("--num-workers", type=int, default=4)
    given = parser.parse_args()
    batches, said = 0, ""
    for batch in loader_of(dataset, given.engine, given.method, given.num_workers):
        batches += 1
        said = told(batch)
    print(f"{batches} batches with {given.engine}'s loader, {given.num_workers} workers under {given.method}")
    if said:
        print(said)
