"""MONAI's loaders under ``stoker run``."""

from __future__ import annotations

import logging
from typing import Any

import stoker
from tests.frameworks.packages import needs
from tests.frameworks.processes import in_fork

monai_data = needs("monai.data")


def read(cls: Any, options: dict[str, Any]) -> tuple[list[list[int]], bool, list[str]]:
    """Two epochs, whether stoker made them, and what the log says."""
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("stoker").addHandler(handler)
    loader = cls([{"number": each} for each in range(10)], batch_size=3, **options)
    batches = [batch["number"].tolist() for _ in range(2) for batch in loader]
    ours = isinstance(loader, stoker.DataLoader) and loader.stats()["batches"] == len(batches)
    return batches, ours, said


def test_its_loader_is_stokers() -> None:
    for cls in (monai_data.DataLoader, monai_data.ThreadDataLoader):
        options = {"num_workers": 2}
        batches, ours, said = in_fork(read, cls, options, swapped=True)
        assert batches == in_fork(read, cls, options)[0]
        assert ours
        assert said == []


def test_thread_workers_stay_torchs() -> None:
    options = {"num_workers": 2, "use_thread_workers": True}
    batches, ours, said = in_fork(read, monai_data.ThreadDataLoader, options, swapped=True)
    assert batches == in_fork(read, monai_data.ThreadDataLoader, options)[0]
    assert not ours
    assert said == [
        "loaders of monai.data.thread_buffer.ThreadDataLoader stay torch's: its multiprocessing_context starts no processes"
    ]
