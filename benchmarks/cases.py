"""The registry: every case, what it loads, how it is measured and which figure it must reach.

Importing this module is cheap: torch and the datasets are imported by ``build``, in the round's process. To
add a case, append to ``CASES``; for a cost without a rival, append a ``Micro`` to ``MICROS``. What is about one copy of the data is
in ``one_copy``, what is about orders in ``shuffle``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks import one_copy, shuffle
from benchmarks.entries import Arguments, Case, Effort, Figure, Kind, Metric, Micro


def _ready_made(
    make: Callable[[], list[Any]], batch_size: int, **extra: Any
) -> Callable[[Effort], Arguments]:
    def build(effort: Effort) -> Arguments:
        from benchmarks import datasets

        return {"dataset": datasets.ReadyMade(make()), "batch_size": batch_size, **extra}

    return build


def _images(shape: tuple[int, ...], dtype: str, batch_size: int) -> Callable[[Effort], Arguments]:
    def make() -> list[Any]:
        import torch

        from benchmarks import datasets

        return list(datasets.images(shape, getattr(torch, dtype)))

    return _ready_made(make, batch_size)


def _records() -> list[Any]:
    from benchmarks import datasets

    return list(datasets.records())


def _ragged(effort: Effort) -> Arguments:
    from benchmarks import datasets

    rows = datasets.ReadyMade(datasets.ragged_rows())
    return {"dataset": rows, "batch_size": 64, "collate_fn": datasets.pad_rows}


def _tensor_list(effort: Effort) -> Arguments:
    import torch

    from benchmarks import datasets

    rows = datasets.ReadyMade(datasets.images((8,), torch.float32))
    return {"dataset": rows, "batch_size": 200, "collate_fn": datasets.separate_rows}


def _jpegs(effort: Effort) -> Arguments:
    from benchmarks import datasets

    return {"dataset": datasets.Jpegs(), "batch_size": 16}


def _slow_samples(effort: Effort) -> Arguments:
    from benchmarks import datasets

    rows = datasets.Sleepy(effort.epoch_batches * 16, usual_s=0.002, slow_s=0.4, slow_every=61)
    return {"dataset": rows, "batch_size": 16, "prefetch_factor": None}


def _first_batch(effort: Effort) -> Arguments:
    from benchmarks import datasets

    return {"dataset": datasets.Sleepy(64 * 8, usual_s=0.01), "batch_size": 64}


def _epoch_gap(effort: Effort) -> Arguments:
    import torch

    from benchmarks import datasets

    rows = datasets.ReadyMade(datasets.images((4,), torch.float32), length=64 * 16)
    return {"dataset": rows, "batch_size": 64, "persistent_workers": True}


def _epoch_edge(effort: Effort) -> Arguments:
    from benchmarks import datasets

    rows = datasets.Sleepy(16 * 16, usual_s=0.0005)
    return {"dataset": rows, "batch_size": 16, "persistent_workers": True}


def _opened_ahead(arguments: Arguments) -> Arguments:
    return {**arguments, "prefetch_epochs": True}


def _core() -> float:
    from benchmarks import scheduler

    return scheduler.cost_us(split=False)


def _core_split() -> float:
    from benchmarks import scheduler

    return scheduler.cost_us(split=True)


def _wall(bound: float) -> tuple[Figure, ...]:
    return (Figure(Metric.WALL, bound),)


CASES: tuple[Case, ...] = (
    Case("tiny", "64 samples of 16 bytes", Kind.STEADY, _images((4,), "float32", 64), _wall(8.0)),
    Case(
        "uint8",
        "64x3x224x224 uint8, ready-made",
        Kind.STEADY,
        _images((3, 224, 224), "uint8", 64),
        (Figure(Metric.WALL, 5.0), Figure(Metric.CPU, 3.0)),
    ),
    Case(
        "float32",
        "64x3x224x224 float32, ready-made",
        Kind.STEADY,
        _images((3, 224, 224), "float32", 64),
        _wall(3.0),
    ),
    Case("large", "8x3x1024x1024 uint8", Kind.STEADY, _images((3, 1024, 1024), "uint8", 8), _wall(3.0)),
    Case(
        "nested",
        "64 dicts: image, string, boxes, scalars",
        Kind.STEADY,
        _ready_made(_records, 64),
        _wall(4.0),
    ),
    Case("ragged", "64 ragged rows padded by a collate_fn", Kind.STEADY, _ragged, _wall(4.0)),
    Case("list200", "collate_fn returns 200 small tensors", Kind.STEADY, _tensor_list, _wall(20.0)),
    Case(
        "jpeg",
        "JPEG decode and resize, 16 per batch",
        Kind.STEADY,
        _jpegs,
        (Figure(Metric.WALL, 1.0), Figure(Metric.EFFICIENCY, 0.93)),
        least_batches=60,
    ),
    Case(
        "slow61",
        "2 ms samples, every 61st 400 ms, 4 workers",
        Kind.EPOCH,
        _slow_samples,
        _wall(1.9),
        workers=4,
    ),
    Case(
        "first",
        "first batch: 64 samples at 10 ms, 4 workers",
        Kind.FIRST,
        _first_batch,
        _wall(2.7),
        workers=4,
    ),
    Case("gap", "between epochs, persistent workers", Kind.GAP, _epoch_gap, _wall(5.0)),
    Case(
        "edge",
        "the same, batches of 8 ms, prefetch_epochs",
        Kind.GAP,
        _epoch_edge,
        _wall(3.0),
        ours=_opened_ahead,
    ),
)


def _recovery() -> float:
    from benchmarks import recovery

    return recovery.delay_us()


def _seeding() -> float:
    from benchmarks import rng

    return rng.range_us()


def _seeding_inline() -> float:
    from benchmarks import rng

    return rng.inline_us()


def _recording() -> float:
    from benchmarks import recording

    return 100 * recording.cpu_share()


MICROS: tuple[Micro, ...] = (
    Micro("core", "the scheduler's own cost per batch", _core, 20.0),
    Micro("core-split", "the same when batches are split over 4 workers", _core_split, 20.0),
    Micro("rng", "seeding one range of rows in a worker", _seeding, 11.0),
    Micro("rng-inline", "seeding a batch of 64 rows without workers", _seeding_inline, 200.0),
    Micro(
        "recording",
        "keeping a record, 64 samples of 16 bytes, parent and workers",
        _recording,
        2.0,
        Metric.OVERHEAD,
        most_rounds=3,
        quick=False,
    ),
    Micro("recovery", "how much later a batch comes when all workers are killed", _recovery, 1e6),
)


def registry() -> dict[str, Case | Micro]:
    """Return every case by name, in the order of the table."""
    entries: list[Case | Micro] = [*CASES, *one_copy.CASES, *MICROS, *one_copy.MICROS, *shuffle.MICROS]
    return {entry.name: entry for entry in entries}
