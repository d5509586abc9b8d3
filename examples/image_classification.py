"""Image classification: a folder of JPEG files, augmentation, a small network, two loaders.

python examples/image_classification.py                      # some seconds; accuracy rises from a quarter to nine tenths
python examples/image_classification.py --num-workers 0      # the same numbers: batches do not depend on the workers

The pictures are generated: stripes lying, standing and slanting, and checks, in random colours and with noise. The
loaders take ``num_workers="auto"``; what they did is printed at the end, from ``loader.stats()``.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import Dataset

from stoker import DataLoader

KINDS = ("lying", "standing", "slanting", "checks")
SIDE, CROP = 56, 48


def picture(kind: str, rng: np.random.Generator) -> Image.Image:
    """One picture of its kind: two colours, stripes of some width that begin somewhere, noise on top."""
    rows, columns = np.mgrid[0:SIDE, 0:SIDE] + rng.integers(0, SIDE, (2, 1, 1))
    width = int(rng.integers(5, 9))
    along = {"lying": rows, "standing": columns, "slanting": rows + columns}
    if kind == "checks":
        first = (rows // width + columns // width) % 2
    else:
        first = along[kind] // width % 2
    colours = rng.integers(0, 256, (2, 3))
    noise = rng.normal(0, 24, (SIDE, SIDE, 3))
    return Image.fromarray(np.clip(colours[first] + noise, 0, 255).astype(np.uint8))


def write_pictures(folder: Path, count: int, seed: int) -> None:
    """``count`` files, as many of each kind: folder/kind/0000.jpg."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        path = folder / KINDS[number % len(KINDS)] / f"{number:04}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        picture(path.parent.name, rng).save(path, quality=85)


class Pictures(Dataset[tuple[torch.Tensor, int]]):
    """The JPEG files below a folder, each with the number of its kind.

    Augmentation draws from Python's global generator. stoker seeds it for each range of rows, so that every epoch
    crops differently and a run can be repeated with any number of workers.
    """

    def __init__(self, folder: Path, *, augment: bool) -> None:
        self.paths = sorted(folder.glob("*/*.jpg"))
        self.augment = augment

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        path = self.paths[index]
        with Image.open(path) as file:
            image = torch.from_numpy(np.array(file.convert("RGB")))
        top = left = (SIDE - CROP) // 2
        if self.augment:
            top, left = random.randint(0, SIDE - CROP), random.randint(0, SIDE - CROP)
        image = image[top : top + CROP, left : left + CROP].permute(2, 0, 1)
        if self.augment and random.random() < 0.5:
            image = 255 - image  # colours mean nothing here
        return image, KINDS.index(path.parent.name)


def network() -> nn.Module:
    """Two convolutions, some thousand weights."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 5, stride=2), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2), nn.BatchNorm2d(32), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, len(KINDS)),
    )  # fmt: skip


def as_floats(images: torch.Tensor) -> torch.Tensor:
    """Bytes travel from the workers; they become floats here, four times as large."""
    return images.float().div_(127.5).sub_(1.0)


def accuracy(model: nn.Module, loader: DataLoader[tuple[torch.Tensor, int]]) -> float:
    """The share of pictures that the model recognises."""
    model.eval()
    right = total = 0
    with torch.inference_mode():
        for images, labels in loader:
            right += int((model(as_floats(images)).argmax(1) == labels).sum())
            total += len(labels)
    return right / total


def summary(loader: DataLoader[Any]) -> str:
    """What a loader has done so far, in a line."""
    stats = loader.stats()
    waited = sum(each["totals"]["wait_ns"] for each in stats["record"]["loaders"]) / 1e9
    workers = stats["tuning"]["workers"] if stats["tuning"] else loader.num_workers
    return f"{stats['name']}: {stats['batches']} batches, {workers} workers, waited {waited:.2f} s for data"


def main() -> None:
    """Generate, train, say how it went."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pictures", type=int, default=640, help="to train with; a quarter as many to check")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--num-workers", default="auto", help='a number, or "auto"')
    given = parser.parse_args()
    workers: Any = int(given.num_workers) if given.num_workers.isdigit() else given.num_workers

    torch.manual_seed(0)
    torch.set_num_threads(1)  # for so small a network more are slower, and take CPUs from the workers
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_pictures(folder / "train", given.pictures, seed=1)
        write_pictures(folder / "check", given.pictures // 4, seed=2)
        train = DataLoader(
            Pictures(folder / "train", augment=True),
            batch_size=given.batch_size,
            shuffle=True,
            num_workers=workers,
            persistent_workers=workers != 0,
            name="train",
        )
        check = DataLoader(
            Pictures(folder / "check", augment=False), batch_size=64, num_workers=workers, name="check"
        )
        model = network()
        optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
        with train, check:
            print(f"before: {accuracy(model, check):.1%} of {len(check.dataset)} pictures recognised")  # type: ignore[arg-type]
            for epoch in range(given.epochs):
                model.train()
                for images, labels in train:
                    loss = nn.functional.cross_entropy(model(as_floats(images)), labels)
                    optimizer.zero_grad()
                    loss.backward()  # type: ignore[no-untyped-call]
                    optimizer.step()
                print(f"epoch {epoch}: {accuracy(model, check):.1%}, loss {loss.item():.3f}")
            print(summary(train))
            print(summary(check))


if __name__ == "__main__":
    main()
