"""The sample cache against torch's loader, in one run, with two workers: python -m benchmarks.cache [--samples N] [--epochs N].

Every row is a ratio inside this run: rates against torch's, or against the same loader without a cache. Rounds of both sides
alternate, and the best of each counts, because other processes only ever slow one down. JPEG files of 500×375 are made in a
temporary folder.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.utils.data
from PIL import Image
from torch.utils.data import Dataset

import stoker

SIDE = 224
BATCH = 64
WORKERS = 2


class Compose:
    """As torchvision's."""

    def __init__(self, transforms: list[Any]) -> None:
        self.transforms = transforms

    def __call__(self, value: Any) -> Any:
        for each in self.transforms:
            value = each(value)
        return value


class RandomCrop:
    """A crop of SIDE × SIDE at random."""

    def __call__(self, picture: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        top = np.random.randint(picture.shape[0] - SIDE + 1)
        left = np.random.randint(picture.shape[1] - SIDE + 1)
        return picture[top : top + SIDE, left : left + SIDE]


class RandomFlip:
    """Mirrors every second picture."""

    def __call__(self, picture: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return picture[:, ::-1] if np.random.random() < 0.5 else picture


class ToTensor:
    """Height × width × 3 to 3 × height × width."""

    def __call__(self, picture: np.ndarray[Any, Any]) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(picture.transpose(2, 0, 1)))


def load(path: str) -> np.ndarray[Any, Any]:
    """Decode a JPEG file."""
    with Image.open(path) as picture:
        return np.asarray(picture.convert("RGB")).copy()


def load_small(path: str) -> np.ndarray[Any, Any]:
    """Decode a JPEG file, and resize it."""
    with Image.open(path) as picture:
        return np.asarray(picture.convert("RGB").resize((SIDE, SIDE))).copy()


class Pictures(Dataset[Any]):
    """A folder of JPEG files."""

    def __init__(self, folder: Path, count: int, loader: Any, transform: Any) -> None:
        self.samples = [(str(folder / f"{number}.jpg"), number % 10) for number in range(count)]
        self.loader = loader
        self.transform = transform

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        path, label = self.samples[index]
        return self.transform(self.loader(path)), label


class Decoded(Dataset[Any]):
    """The transforms alone: decoded pictures that lie in memory, used in turn."""

    def __init__(self, pictures: list[np.ndarray[Any, Any]], count: int, transform: Any) -> None:
        self.pictures = pictures
        self.count = count
        self.transform = transform

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.transform(self.pictures[index % len(self.pictures)]), index


class Plain(Dataset[Any]):
    """Samples of about 150 kB that cost a copy."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.full((3, SIDE, SIDE), index % 251, dtype=torch.uint8), index


def rate(loader: Any) -> float:
    """Samples a second of an epoch."""
    began, count = time.perf_counter(), 0
    for picture, _ in loader:
        count += len(picture)
    return count / (time.perf_counter() - began)


def alternate(rounds: int, *loaders: Any) -> list[float]:
    """The best rate of each loader, their epochs taken in turn. Every round begins with another one: the first is slower."""
    best = [0.0] * len(loaders)
    for number in range(rounds):
        for step in range(len(loaders)):
            place = (number + step) % len(loaders)
            best[place] = max(best[place], rate(loaders[place]))
    return best


def ours(dataset: Any, **arguments: Any) -> Any:
    """Our loader, with workers that stay."""
    return stoker.DataLoader(
        dataset, batch_size=BATCH, shuffle=True, num_workers=WORKERS, persistent_workers=True, **arguments
    )


def theirs(dataset: Any) -> Any:
    """torch's loader, with workers that stay."""
    return torch.utils.data.DataLoader(
        dataset, batch_size=BATCH, shuffle=True, num_workers=WORKERS, persistent_workers=True
    )


def show(what: str, value: float, bound: str) -> None:
    """One line of the table."""
    print(f"{what:<66} {value:>9.2f}   {bound}", flush=True)


def whole(folder: Path, count: int, epochs: int) -> None:
    """Whole samples: filling, and later epochs. A first epoch has fresh workers, with the cache and without."""
    pictures = Pictures(folder, count, load_small, ToTensor())
    torch_loader = theirs(pictures)
    rate(torch_loader)
    filling: list[float] = []
    without: list[float] = []
    loader: Any = None
    for number in range(epochs):
        plain = ours(pictures)
        loader = ours(stoker.cache(pictures, count * 160_000 + number))  # another budget: another store
        turns = [(filling, loader), (without, plain)]
        for rates, each in turns if number % 2 else reversed(turns):
            rates.append(rate(each))
        plain.close()
    later, theirs_rate = alternate(epochs, loader, torch_loader)
    show("JPEG whole, epochs >= 2, against torch", later / theirs_rate, ">= 12")
    show("JPEG whole, epoch 1 (filling), against no cache", max(filling) / max(without), ">= 0.93")


def decoder(folder: Path, count: int, epochs: int) -> None:
    """The decoder's output kept, crop and flip anew.

    The transforms alone run over decoded pictures in memory, as the cache has them. Over one picture they are faster, because
    it stays in the core's own cache (0.56 MB): no data set of this size does, so that row has no bound.
    """
    transform = Compose([RandomCrop(), RandomFlip(), ToTensor()])
    pictures = Pictures(folder, count, load, transform)
    torch_loader = theirs(pictures)
    kept = Pictures(folder, count, stoker.cached(load, count * 600_000), transform)
    cut = stoker.cache(Pictures(folder, count, load, transform), count * 600_000, before="transform")
    in_memory = [load(path) for path, _ in pictures.samples]
    alone = ours(Decoded(in_memory, count, transform))
    one = ours(Decoded(in_memory[:1], count, transform))
    loaders = [ours(kept), ours(cut), alone, one, torch_loader]
    for each in loaders:
        rate(each)
    by_function, by_cut, alone_rate, one_rate, torch_rate = alternate(epochs, *loaders)
    for name, found in (("cached", by_function), ('before="transform"', by_cut)):
        show(f"JPEG decode kept ({name}), crop and flip anew, against torch", found / torch_rate, ">= 3")
        show("  against the transforms alone, over pictures in memory", found / alone_rate, ">= 0.9")
        show("  against the transforms alone, over one picture", found / one_rate, "")


def hit() -> None:
    """The cost of a hit above the copy of its bytes."""
    count = 400
    cached = stoker.cache(Plain(count), 100_000_000)
    for index in range(count):
        cached[index]
    sources = [Plain(count)[index][0].numpy() for index in range(count)]  # as cold as the store

    def best_us(fetch: Callable[[int], Any]) -> float:
        best = float("inf")
        for _ in range(15):
            began = time.perf_counter_ns()
            for index in range(count):
                fetch(index)
            best = min(best, (time.perf_counter_ns() - began) / count / 1000)
        return best

    view = cached.__stoker_views__()
    copy_us = best_us(lambda index: bytearray(sources[index]))
    show("a hit of 150 kB, µs above its memcpy", best_us(cached.__getitem__) - copy_us, "<= 15")
    show("a hit of 150 kB for torch's own collation, µs", best_us(view), "<= 15")


def disk(folder: Path, count: int, epochs: int) -> None:
    """The first epoch of a second run, from files in the page cache."""
    pictures = Pictures(folder, count, load_small, ToTensor())
    place = folder / "kept"
    first = stoker.cache(pictures, "8GiB", path=place)
    rate(ours(first))
    del first
    fresh: dict[str, Any] = {
        "batch_size": BATCH,
        "num_workers": WORKERS,
    }  # as a run begins: workers have to start
    again, without = [], []
    for _ in range(epochs):
        without.append(rate(torch.utils.data.DataLoader(pictures, **fresh)))
        again.append(rate(stoker.DataLoader(stoker.cache(pictures, "8GiB", path=place), **fresh)))
    show("disk tier, first epoch of the second run, against torch", max(again) / max(without), ">= 5")


def pss_of_stores(pid: int) -> int:
    """The proportional memory of a process's mappings of stores."""
    total, ours_now = 0, False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if "-" in line.split(" ", 1)[0] and ":" not in line.split(" ", 1)[0]:
            ours_now = "memfd:stoker-cache" in line
        elif ours_now and line.startswith("Pss:"):
            total += int(line.split()[1]) << 10
    return total


RANK = """
import sys, torch
from benchmarks import cache as bench
loader = bench.ours(bench.stoker.cache(bench.Plain(int(sys.argv[1])), int(sys.argv[1]) * 151_000, name=sys.argv[2]))
for _ in range(2):
    bench.rate(loader)
print(" ".join(str(pid) for pid in [bench.os.getpid(), *[int(each) for each in
    open(f"/proc/{bench.os.getpid()}/task/{bench.os.getpid()}/children").read().split()]]), flush=True)
sys.stdin.read()
"""


def memory(gibibytes: float) -> None:
    """All of two ranks with two workers each, over the same samples."""
    count = int(gibibytes * (1 << 30) / (3 * SIDE * SIDE))
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, str(count), f"bench-{os.getpid()}"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for _ in range(2)
    ]  # fmt: skip
    try:
        pids = [
            int(pid) for rank in ranks if rank.stdout is not None for pid in rank.stdout.readline().split()
        ]
        total = sum(pss_of_stores(pid) for pid in pids)
        show(
            "PSS of the store, 2 ranks x 2 workers, against the samples",
            total / (count * 3 * SIDE * SIDE),
            "<= 1.05",
        )
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=512)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--gibibytes", type=float, default=1.0)
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pattern = np.random.default_rng(0)
        for number in range(given.samples):
            coarse = pattern.integers(0, 255, (25, 32, 3), np.uint8)
            smooth = Image.fromarray(coarse).resize((500, 375), Image.Resampling.BICUBIC)
            smooth.save(folder / f"{number}.jpg", quality=90)
        parts: dict[str, Callable[[], None]] = {
            "hit": hit,
            "whole": lambda: whole(folder, given.samples, given.epochs),
            "decoder": lambda: decoder(folder, given.samples, given.epochs),
            "disk": lambda: disk(folder, given.samples, given.epochs),
            "memory": lambda: memory(given.gibibytes),
        }
        for part, run in parts.items():
            if not given.only or part in given.only.split(","):
                run()


if __name__ == "__main__":
    main()
