"""``python -m benchmarks.epochs``: whole epochs, from ``iter()`` to StopIteration, against torch's loader.

The other cases measure a warm loader in the middle of an epoch. This grid has what people meet first: short epochs, fresh
workers, no workers. Every row of the grid runs in a fresh process per round. In it torch and stoker take turns, epoch by
epoch, with the same arguments. An epoch's clock starts before ``iter()`` and stops when the iterator has raised
StopIteration and was dropped. Nothing else runs until the workers of that epoch are gone.

The tables show torch's time over stoker's, for first and later epochs: below 1 the swap costs time. They end with the list of
all such cells. A last part starts many workers: how ``iter()`` and the first batch grow with their number.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LATER = 5
"""Epochs after the first that a round measures per cell and side."""
QUIET_S = 5.0
ROUND_TIMEOUT_S = 600.0


@dataclass(frozen=True)
class Row:
    """One kind of data: ``build(batches)`` returns the constructor's arguments for an epoch of that many batches."""

    name: str
    build: Callable[[int], dict[str, Any]]
    batches: tuple[int, ...]
    inline: bool = True
    """Whether it is also measured without workers."""


@dataclass(frozen=True)
class Mode:
    """One column of the grid."""

    label: str
    workers: int
    persistent: bool = False

    @property
    def arguments(self) -> dict[str, Any]:
        return {"num_workers": self.workers, **({"persistent_workers": True} if self.persistent else {})}


MODES = (Mode("0", 0), Mode("1", 1), Mode("2", 2), Mode("4", 4), Mode("2p", 2, persistent=True))


def _ints(batches: int) -> dict[str, Any]:
    return {"dataset": range(64 * batches), "batch_size": 64}


def _tensors(batches: int) -> dict[str, Any]:
    import torch
    from torch.utils.data import TensorDataset

    rows = 64 * batches
    images = torch.arange(rows * 784, dtype=torch.float32).reshape(rows, 784)
    return {"dataset": TensorDataset(images, torch.arange(rows)), "batch_size": 64}


def _pictures(size: int, samples: int) -> Callable[[int], dict[str, Any]]:
    def build(batches: int) -> dict[str, Any]:
        import torch

        from benchmarks import datasets

        pictures = datasets.images((3, size, size), torch.uint8)
        return {"dataset": datasets.ReadyMade(pictures, samples * batches), "batch_size": samples}

    return build


def _nested(batches: int) -> dict[str, Any]:
    from benchmarks import datasets

    return {"dataset": datasets.ReadyMade(datasets.records(), 64 * batches), "batch_size": 64}


def _ragged(batches: int) -> dict[str, Any]:
    from benchmarks import datasets

    rows = datasets.ReadyMade(datasets.ragged_rows(), 64 * batches)
    return {"dataset": rows, "batch_size": 64, "collate_fn": datasets.pad_rows}


def _jpegs(batches: int) -> dict[str, Any]:
    from benchmarks import datasets

    return {"dataset": datasets.Jpegs(16 * batches), "batch_size": 16}


ROWS = (
    Row("ints", _ints, (5, 50, 500)),
    Row("TensorDataset", _tensors, (5, 50, 500)),
    Row("9.6 MB", _pictures(224, 64), (5, 20, 100)),
    Row("25 MB", _pictures(362, 64), (5, 20), inline=False),
    Row("nested", _nested, (5, 50)),
    Row("ragged", _ragged, (50,)),
    Row("JPEG", _jpegs, (5, 40)),
)


@dataclass(frozen=True)
class Epoch:
    """What one epoch took, in seconds: all of it, ``iter()``, to the first batch, and from the last one to StopIteration."""

    whole: float
    opened: float
    first: float
    end: float


def epoch_of(loader: Any) -> Epoch:
    """Iterate over one epoch and drop its iterator; the loop does nothing with a batch."""
    began = time.perf_counter()
    iterator = iter(loader)
    opened = time.perf_counter()
    next(iterator)
    first = last = time.perf_counter()
    while True:
        try:
            next(iterator)
        except StopIteration:
            break
        last = time.perf_counter()
    ended = time.perf_counter()
    del iterator
    return Epoch(time.perf_counter() - began, opened - began, first - began, ended - last)


def _children() -> list[str]:
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()


def _settle(keep: int) -> None:
    """Wait until only ``keep`` children are left: those of persistent loaders and of helpers that stay."""
    until = time.monotonic() + QUIET_S
    while len(_children()) > keep and time.monotonic() < until:
        time.sleep(0.002)


def cell(row: Row, batches: int, mode: Mode, stoker_first: bool, later: int) -> dict[str, list[list[float]]]:
    """Measure one cell: a list of epochs per side, the first epoch first."""
    import torch.utils.data

    import stoker

    arguments = row.build(batches) | mode.arguments
    torchs: Any = torch.utils.data.DataLoader(**arguments)
    ours: Any = stoker.DataLoader(**arguments)
    sides = [("stoker", ours), ("torch", torchs)] if stoker_first else [("torch", torchs), ("stoker", ours)]
    found: dict[str, list[list[float]]] = {"torch": [], "stoker": []}
    for number in range(1 + later):
        for name, loader in sides:
            before = len(_children())
            took = epoch_of(loader)
            found[name].append([took.whole, took.opened, took.first, took.end])
            _settle(len(_children()) if mode.persistent and number == 0 else before)
    ours.close()
    return found


def run_row(name: str, stoker_first: bool, later: int, modes: list[str]) -> None:
    """In a fresh process: measure every cell of a row and print it as one line of JSON each."""
    import torch

    torch.set_num_threads(1)
    row = next(each for each in ROWS if each.name == name)
    for batches in row.batches:
        for mode in MODES:
            if mode.label in modes and (mode.workers or row.inline):
                found = cell(row, batches, mode, stoker_first, later)
                print(json.dumps({"batches": batches, "mode": mode.label, "epochs": found}), flush=True)


Key = tuple[str, int, str]


@dataclass
class Cell:
    """All rounds of one cell: torch's time over stoker's."""

    first: list[float]
    later: list[float]
    end_ms: tuple[list[float], list[float]]

    @classmethod
    def empty(cls) -> Cell:
        return cls([], [], ([], []))

    def add(self, epochs: dict[str, list[list[float]]]) -> None:
        """Take in one round."""
        torchs, ours = epochs["torch"], epochs["stoker"]
        self.first.append(torchs[0][0] / ours[0][0])
        self.later.append(_median(torchs, 0) / _median(ours, 0))
        self.end_ms[0].append(1000 * _median(torchs, 3))
        self.end_ms[1].append(1000 * _median(ours, 3))


def _median(epochs: list[list[float]], column: int) -> float:
    return statistics.median(each[column] for each in epochs[1:])


def _round(row: Row, number: int, options: argparse.Namespace, cells: dict[Key, Cell]) -> None:
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "benchmarks.epochs",
        "--row",
        row.name,
        "--later",
        str(options.later),
    ]
    command += ["--modes", options.modes, *(["--stoker-first"] if number % 2 else [])]
    done = subprocess.run(command, stdout=subprocess.PIPE, timeout=ROUND_TIMEOUT_S, check=True)
    for line in done.stdout.splitlines():
        found = json.loads(line)
        key = (row.name, found["batches"], found["mode"])
        cells.setdefault(key, Cell.empty()).add(found["epochs"])


def render(cells: dict[Key, Cell]) -> str:
    """The grids of first and later epochs with their spread, and the cells below 1."""
    lines = ["torch / stoker, median (lowest..highest of the rounds)"]
    for title, ratios in (("first epochs", _first), ("later epochs", _later)):
        lines += ["", f"{title:20}" + "".join(f"{mode.label + ' workers':>20}" for mode in MODES)]
        for row in ROWS:
            for batches in row.batches:
                line = f"{row.name + ', ' + str(batches):20}"
                for mode in MODES:
                    found = cells.get((row.name, batches, mode.label))
                    line += f"{'' if found is None else _spread(ratios(found)):>20}"
                if line.strip() != f"{row.name}, {batches}":
                    lines.append(line.rstrip())
    lines.append("")
    below = [(key, each) for key, each in cells.items() if statistics.median(each.later) < 1]
    lines.append(f"{len(below)} of {len(cells)} cells are below 1:")
    for key, each in sorted(below, key=lambda item: statistics.median(item[1].later)):
        torchs, ours = (statistics.median(side) for side in each.end_ms)
        text = f"  {statistics.median(each.later):.2f}  {key[0]}, {key[1]} batches, {key[2]} workers"
        lines.append(f"{text}; StopIteration {torchs:.1f} / {ours:.1f} ms")
    return "\n".join(lines)


def _first(found: Cell) -> list[float]:
    return found.first


def _later(found: Cell) -> list[float]:
    return found.later


def _spread(ratios: list[float]) -> str:
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f}..{max(ratios):.2f})"


STARTS = (2, 16, 96)
"""Numbers of workers whose start is measured."""


def run_start(workers: int, stoker_first: bool) -> None:
    """In a fresh process: start so many workers on samples that sleep 20 ms, batches of 8; print ``iter()`` and first batch."""
    import torch.utils.data

    import stoker
    from benchmarks import datasets

    arguments: dict[str, Any] = {
        "dataset": datasets.Sleepy(16 * workers, usual_s=0.02),
        "batch_size": 8,
        "num_workers": workers,
    }
    sides: list[tuple[str, Any]] = [("torch", torch.utils.data.DataLoader), ("stoker", stoker.DataLoader)]
    found = {}
    for name, loader_type in reversed(sides) if stoker_first else sides:
        before = len(_children())
        began = time.perf_counter()
        iterator = iter(loader_type(**arguments))
        opened = time.perf_counter()
        next(iterator)
        found[name] = (opened - began, time.perf_counter() - began)
        del iterator
        _settle(before)
    print(json.dumps(found), flush=True)


def starts(rounds: int) -> dict[int, list[dict[str, list[float]]]]:
    """What starting took, by number of workers and round."""
    found: dict[int, list[dict[str, list[float]]]] = {workers: [] for workers in STARTS}
    for number in range(rounds):
        for workers in STARTS:
            print(f"round {number + 1}/{rounds}  start {workers} workers", file=sys.stderr, flush=True)
            command = [sys.executable, "-W", "ignore", "-m", "benchmarks.epochs", "--start", str(workers)]
            command += ["--stoker-first"] if number % 2 else []
            done = subprocess.run(command, stdout=subprocess.PIPE, timeout=ROUND_TIMEOUT_S, check=True)
            found[workers].append(json.loads(done.stdout))
    return found


def render_starts(found: dict[int, list[dict[str, list[float]]]]) -> str:
    """A line per number of workers, and how much longer 16 take than 2."""
    lines = ["starting workers      iter() ms, torch  stoker   first batch, torch / stoker"]
    opened: dict[int, float] = {}
    for workers, each in found.items():
        torch_ms, ours_ms = (
            1000 * statistics.median(one[name][0] for one in each) for name in ("torch", "stoker")
        )
        opened[workers] = ours_ms
        ratio = _spread([one["torch"][1] / one["stoker"][1] for one in each])
        lines.append(f"{workers:3} workers {torch_ms:27.1f} {ours_ms:7.1f} {ratio:>28}")
    lines.append(f"iter() with 16 workers takes {opened[16] / opened[2]:.2f} times as long as with 2")
    return "\n".join(lines)


def main() -> int:
    """Take turns and print the grid. Ctrl-C prints what there is."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.epochs", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--later", type=int, default=LATER, help="epochs after the first, per cell and round")
    parser.add_argument("--only", help="rows of the grid, with commas between them")
    parser.add_argument("--modes", default=",".join(mode.label for mode in MODES), help="columns of the grid")
    parser.add_argument("--json", type=Path, help="write every round's ratios here")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    parser.add_argument("--start", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--stoker-first", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.row:
        run_row(options.row, options.stoker_first, options.later, options.modes.split(","))
        return 0
    if options.start:
        run_start(options.start, options.stoker_first)
        return 0
    rows = [row for row in ROWS if not options.only or row.name in options.only.split(",")]
    cells: dict[Key, Cell] = {}
    started: dict[int, list[dict[str, list[float]]]] = {}
    try:
        for number in range(options.rounds):
            for row in rows:
                print(f"round {number + 1}/{options.rounds}  {row.name}", file=sys.stderr, flush=True)
                _round(row, number, options, cells)
        if not options.only:
            started = starts(options.rounds)
    except KeyboardInterrupt:
        print("interrupted: what follows covers the rounds that were finished", file=sys.stderr)
    print(render(cells))
    if started:
        print("\n" + render_starts(started))
    if options.json:
        listed = [
            {"row": key[0], "batches": key[1], "mode": key[2], "first": each.first, "later": each.later}
            for key, each in cells.items()
        ]
        options.json.write_text(json.dumps(listed, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
