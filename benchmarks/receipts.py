"""What a receipt costs, and how fast ``stoker verify`` is: ``python -m benchmarks.receipts``.

The cost is CPU time of the thread that iterates: all that the writer of an epoch does for many batches, with the hashing that it
puts off, divided by them. Two sizes of batches give the part of a batch and the part of an index. ``stoker verify`` is run as
people run it, on the receipts of two runs of a million batches each.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.utils.data

import stoker
from stoker._receipt.receipt_writer import ReceiptWriter

ROUNDS = 5
SMALL, LARGE = 8, 512
NOTED = 20_000
MILLION = 1_000_000


class Numbers(torch.utils.data.Dataset[int]):
    """As many samples as batches: each is its own number."""

    def __len__(self) -> int:
        return MILLION + SMALL

    def __getitem__(self, index: int) -> int:
        return index


def begun() -> tuple[Any, ReceiptWriter]:
    """An iterator, and the writer of its epoch."""
    torch.manual_seed(0)
    loader = stoker.DataLoader(Numbers(), batch_size=SMALL)
    iterator = iter(loader)
    next(iterator)
    found = loader._place().receipts._current
    assert found is not None
    return iterator, found


def batch_us(rows: int) -> float:
    """CPU time of a batch of so many indices, in microseconds."""
    indices = [list(range(first, first + rows)) for first in range(1000)]
    _iterator, book = begun()
    began_ns = time.thread_time_ns()
    for number in range(NOTED):
        book.note(number + 1, indices[number % 1000])
    book.fold()
    return (time.thread_time_ns() - began_ns) / NOTED / 1e3


def receipt_of(path: Path) -> None:
    """Write the receipt of an epoch of a million batches, most of one sample."""
    _iterator, book = begun()
    for number in range(1, MILLION):
        book.note(number, [number + SMALL - 1])
    book.receipt().save(path)


def main() -> None:
    """Print the figures."""
    small = statistics.median(batch_us(SMALL) for _ in range(ROUNDS))
    large = statistics.median(batch_us(LARGE) for _ in range(ROUNDS))
    index_ns = (large - small) / (LARGE - SMALL) * 1e3
    batch_ns = small * 1e3 - SMALL * index_ns
    print(f"a receipt costs {batch_ns / 1e3:.2f} µs a batch and {index_ns:.1f} ns an index")
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in ("a.receipt", "b.receipt")]
        for path in paths:
            receipt_of(path)
        for given in (paths[:1], paths):
            began_s = time.monotonic()
            ran = subprocess.run(
                [sys.executable, "-m", "stoker", "verify", *map(str, given)], capture_output=True, text=True
            )
            took_s = time.monotonic() - began_s
            print(
                f"stoker verify on {len(given)} × {MILLION:,} batches: {took_s:.2f} s, exit code {ran.returncode}"
            )
            print("  " + "\n  ".join((ran.stdout or ran.stderr).strip().splitlines()))


if __name__ == "__main__":
    main()
