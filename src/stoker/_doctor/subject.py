"""What is examined: a dataset and the loader around it, live, in the process that probes are made in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Subject:
    """Made where the target was loaded; never travels. Facts about it do."""

    dataset: Any
    loader: Any = None
    """A DataLoader of torch's or ours; None when a dataset was given."""
    others: tuple[Any, ...] = ()
    """Further loaders, when the target gave several: the one for validation, say."""
    arguments: dict[str, Any] = field(default_factory=dict)
    """batch_size, num_workers, collate_fn, worker_init_fn, drop_last, persistent_workers, pin_memory, prefetch_factor,
    multiprocessing_context, sampler, ...: as the loader has them, or what was asked to be assumed for a dataset."""
    name: str = "dataset"
    """What it is called in messages: "data.py:train"."""
