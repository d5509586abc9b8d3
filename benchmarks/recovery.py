"""How much later a batch arrives because the worker that was making it was killed (fork)."""

from __future__ import annotations

import logging
import os
import signal
import time
from typing import Any

from torch.utils.data import Dataset

from stoker import DataLoader

_SAMPLE_S = 0.01
_ROWS = 10
_BATCHES = 24
_KILL_AFTER = range(3, _BATCHES - 2, 4)


class _Paced(Dataset[int]):
    """Samples that take their time without using a core, so that what is measured is the recovery and not the machine's load."""

    def __len__(self) -> int:
        return _ROWS * _BATCHES

    def __getitem__(self, index: int) -> int:
        time.sleep(_SAMPLE_S)
        return index


def delay_us() -> float:
    """Return the worst delay of a batch, over kills at different places of an epoch, against an epoch without any."""
    logger = logging.getLogger("stoker")
    level = logger.level
    logger.setLevel(logging.ERROR)  # every death is a warning, and here they are wanted
    try:
        calm, disturbed = _gaps_s(kill=False), _gaps_s(kill=True)
    finally:
        logger.setLevel(level)
    return max(disturbed[place + 1] - calm[place + 1] for place in _KILL_AFTER) * 1e6


def _gaps_s(*, kill: bool) -> list[float]:
    """Seconds from each batch to the next; with ``kill`` all workers are killed after some of the batches."""
    loader: Any = DataLoader(_Paced(), batch_size=_ROWS, num_workers=2, multiprocessing_context="fork")
    gaps_s = []
    iterator = iter(loader)
    last_s = time.perf_counter()
    for number, batch in enumerate(iterator):
        if batch[0] != number * _ROWS:
            raise RuntimeError(f"batch {number} begins with sample {batch[0]}")
        now_s = time.perf_counter()
        gaps_s.append(now_s - last_s)
        last_s = now_s
        if kill and number in _KILL_AFTER:
            for worker in iterator._workers:
                if worker.is_alive():
                    os.kill(worker.pid, signal.SIGKILL)
    return gaps_s
