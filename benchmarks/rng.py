"""What it costs that random numbers belong to the batch: batches made in turn with ``rng="batch"`` and with ``rng="torch"``.

Both makers do the same but for the seeding, so the difference of two neighbouring batches is what it costs.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

from stoker._runtime.protocol.worker_spec import BatchOrder, RngMode, WorkerSpec
from stoker._runtime.scheduler.row_ranges import row_ranges
from stoker._runtime.worker.batch_maker import BatchMaker

ROWS = 64
_PAIRS = 1500
_WARM = 100


def range_us() -> float:
    """µs a range, in a worker."""
    return _difference_us(inline=False) / len(row_ranges(ROWS))


def inline_us() -> float:
    """µs a batch, with ``num_workers=0``: the training process's generators are kept and put back as well."""
    return _difference_us(inline=True)


def _difference_us(*, inline: bool) -> float:
    """Median over pairs of neighbouring batches. CPU time: what other programs take is nobody's cost here."""
    seeded, plain = _maker("batch", inline=inline), _maker("torch", inline=inline)
    indices = list(range(ROWS))
    found_ns = []
    for number in range(_WARM + _PAIRS):
        order = BatchOrder(1, number, number, 0, 0, 1, 0, ROWS, ROWS, 77, 5, 0, indices)
        start_ns = time.thread_time_ns()
        seeded.make(order, None)
        between_ns = time.thread_time_ns()
        plain.make(order, None)
        found_ns.append(between_ns - start_ns - (time.thread_time_ns() - between_ns))
    return statistics.median(found_ns[_WARM:]) / 1e3


def _maker(rng: RngMode, *, inline: bool) -> BatchMaker:
    rows: Any = range(ROWS)
    spec = WorkerSpec(
        dataset=rows,
        iterable=False,
        auto_collation=True,
        collate_fn=len,
        drop_last=False,
        worker_init_fn=None,
        num_workers=0 if inline else 1,
        rng=rng,
        rank=0,
        own_collate=False,
    )
    return BatchMaker(spec, 0, inline=inline)
