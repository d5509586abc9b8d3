"""A sample cache: JPEG files are decoded once per machine, and cropped and flipped anew in every epoch.

python examples/sample_cache.py                      # some seconds: the first epoch decodes, later ones only crop and flip
python examples/sample_cache.py --whole              # without random transforms, finished samples are kept
python examples/sample_cache.py --num-workers 0      # the same batches: a cache changes none

The pictures are written to a temporary folder first. ``stoker.cache(pictures)`` refuses random samples and names what
draws; ``before="transform"`` keeps what is there before the first random step.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset

import stoker

SIDE, CROP = 320, 224


def write_pictures(folder: Path, count: int, seed: int = 0) -> None:
    """``count`` JPEG files: coloured shapes with some noise, about as large as photographs of that size."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        coarse = rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)
        smooth = np.asarray(Image.fromarray(coarse).resize((SIDE, SIDE)), dtype=np.int16)
        noisy = np.clip(smooth + rng.integers(-12, 13, smooth.shape), 0, 255).astype(np.uint8)
        Image.fromarray(noisy).save(folder / f"{number:04}.jpg", quality=90)


def decode(path: Path) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The slow part, which is the same every time."""
    with Image.open(path) as file:
        return np.array(file.convert("RGB"))


def crop_and_flip(image: np.ndarray[Any, np.dtype[np.uint8]]) -> torch.Tensor:
    """The random part. stoker seeds Python's generator for each range of rows."""
    top, left = random.randint(0, SIDE - CROP), random.randint(0, SIDE - CROP)
    image = image[top : top + CROP, left : left + CROP]
    if random.random() < 0.5:
        image = image[:, ::-1]
    return to_tensor(image)


def crop_centre(image: np.ndarray[Any, np.dtype[np.uint8]]) -> torch.Tensor:
    """The same crop every time."""
    first = (SIDE - CROP) // 2
    return to_tensor(image[first : first + CROP, first : first + CROP])


def to_tensor(image: np.ndarray[Any, np.dtype[np.uint8]]) -> torch.Tensor:
    """Channels first, in memory of its own."""
    return torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1)))


class Pictures(Dataset[torch.Tensor]):
    """The JPEG files of a folder."""

    def __init__(self, folder: Path, transform: Any) -> None:
        self.paths = sorted(folder.glob("*.jpg"))
        self.transform = transform

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> torch.Tensor:
        image: torch.Tensor = self.transform(decode(self.paths[index]))
        return image


def cached(folder: Path, *, whole: bool) -> Any:
    """The dataset with a cache: of finished samples where nothing in them is random, else of decoded pictures."""
    if whole:
        return stoker.cache(Pictures(folder, crop_centre), budget="512MiB")
    pictures = Pictures(folder, crop_and_flip)
    try:
        stoker.cache(pictures, budget="512MiB")
    except ValueError as error:  # as it should: the crops of the first epoch would stay for ever
        print(f"refused: {str(error).splitlines()[0]}")
    return stoker.cache(pictures, before="transform", budget="512MiB")


def main() -> None:
    """Some epochs with the cache: how long each took, and what the cache did."""
    parser = argparse.ArgumentParser(description="A sample cache on JPEG files.")
    parser.add_argument("--pictures", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--num-workers", type=int, default=2)
    parser.add_argument(
        "--whole", action="store_true", help="keep finished samples, without random transforms"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="stoker-example-") as folder:
        write_pictures(Path(folder), options.pictures)
        dataset = cached(Path(folder), whole=options.whole)
        # The same seed, so that two runs of this script print the same sums.
        generator = torch.Generator().manual_seed(0)
        with stoker.DataLoader(
            dataset,
            batch_size=32,
            shuffle=True,
            num_workers=options.num_workers,
            persistent_workers=options.num_workers > 0,
            generator=generator,
        ) as loader:
            for epoch in range(options.epochs):
                began = time.perf_counter()
                total = sum(int(batch.sum()) for batch in loader)
                took = time.perf_counter() - began
                print(f"epoch {epoch}: {options.pictures / took:,.0f} pictures/s, sum {total}")
            use = loader.stats()["cache"]
            print(
                f"cache: {use['hits']} hits, {use['misses']} misses, {use['stored_bytes'] / 2**20:.0f} MiB stored"
            )
            print(f"saved: {use['saved_ns'] / 1e9:.1f} s of the workers' time")


if __name__ == "__main__":
    main()
