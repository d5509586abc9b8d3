"""Datasets as people publish them, without a fault. The forms were found in public repositories; the code was written here.

Each function returns a loader as its script would make it. The doctor has nothing to say of them.
"""

from __future__ import annotations

import csv
import json
import random
import wave
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    Dataset,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
    random_split,
)

from benchmarks.advice.cases import KEEP, Cases
from benchmarks.advice.files import folder

HEALTHY = Cases()
_OPENCV = ("STK307",)
"""With torch's loader, OpenCV may start a thread per CPU in each worker. The finding is of severity low, and true."""


class CsvImages(Dataset[Any]):
    """A table of paths and labels, read with pandas; Pillow; a transform."""

    def __init__(self, root: Path, transform: Any = None) -> None:
        import pandas as pd

        self.root, self.transform = root, transform
        self.df = pd.read_csv(root / "labels.csv")

    def __len__(self) -> int:
        return len(self.df)

    def __getitem__(self, idx: int) -> Any:
        from PIL import Image

        image = Image.open(self.root / self.df["path"].iloc[idx]).convert("RGB").resize((96, 96))
        label = torch.tensor(int(self.df["label"].iloc[idx]))
        return (self.transform(image) if self.transform else image), label


class ToTensor:
    """uint8 to float, channels first."""

    def __call__(self, image: Any) -> torch.Tensor:
        return torch.from_numpy(np.array(image)).permute(2, 0, 1)


class Augment:
    """Random flip and crop, from all three generators."""

    def __call__(self, image: Any) -> torch.Tensor:
        array = np.array(image)
        if random.random() < 0.5:
            array = array[:, ::-1]
        top, left = np.random.randint(0, 16), int(torch.randint(0, 16, ()))
        return torch.from_numpy(array[top : top + 80, left : left + 80].copy()).permute(2, 0, 1)


@HEALTHY()
def csv_images() -> Any:
    return DataLoader(CsvImages(folder(), ToTensor()), batch_size=16, shuffle=True, **KEEP)


@HEALTHY()
def augmented_images() -> Any:
    return DataLoader(CsvImages(folder(), Augment()), batch_size=16, shuffle=True, drop_last=True, **KEEP)


class FolderImages(Dataset[Any]):
    """A folder per class, listed once; (path, class) tuples."""

    def __init__(self, root: Path) -> None:
        self.classes = sorted(entry.name for entry in root.iterdir())
        self.samples = [
            (str(path), number)
            for number, name in enumerate(self.classes)
            for path in sorted((root / name).glob("*.jpg"))
        ]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        import cv2

        path, target = self.samples[index]
        image = cv2.cvtColor(cv2.imread(path), cv2.COLOR_BGR2RGB)  # type: ignore[arg-type]  # None where the file is gone
        return torch.from_numpy(cv2.resize(image, (96, 96))).permute(2, 0, 1), target


@HEALTHY(also=_OPENCV)
def folder_images() -> Any:
    return DataLoader(FolderImages(folder() / "pictures"), 16, shuffle=True, **KEEP)


class Segmentation(Dataset[Any]):
    """Image and mask in a dict, cropped at the same place."""

    def __init__(self, root: Path) -> None:
        self.paths = sorted((root / "pictures").rglob("*.jpg"))

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> dict[str, Any]:
        from PIL import Image

        image = np.array(Image.open(self.paths[index]))
        mask = (image.mean(2) > 128).astype(np.int64)
        top = random.randint(0, 24)
        return {
            "image": image[top : top + 96, :96].copy(),
            "mask": mask[top : top + 96, :96].copy(),
            "name": self.paths[index].name,
        }


@HEALTHY()
def segmentation() -> Any:
    return DataLoader(Segmentation(folder()), 8, shuffle=True, **KEEP)


class Detection(Dataset[Any]):
    """Images with different numbers of boxes."""

    def __init__(self, root: Path) -> None:
        self.paths = sorted(str(path) for path in (root / "pictures").rglob("*.jpg"))

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        from PIL import Image

        image = torch.from_numpy(np.array(Image.open(self.paths[index]))).permute(2, 0, 1)
        boxes = torch.rand(index % 5 + 1, 4)
        return image, {"boxes": boxes, "labels": torch.ones(len(boxes), dtype=torch.int64)}


def detection_collate(batch: Any) -> Any:
    """As torchvision's references have it."""
    return tuple(zip(*batch, strict=True))


@HEALTHY(
    also=("STK701",)
)  # 24 small tensors a batch: taking them from a worker costs more than decoding these pictures
def detection() -> Any:
    return DataLoader(Detection(folder()), 8, shuffle=True, collate_fn=detection_collate, **KEEP)


class Tokens(Dataset[Any]):
    """Blocks of a file of token ids, mapped."""

    def __init__(self, path: Path, block_size: int) -> None:
        self.data = np.memmap(path, dtype=np.uint16, mode="r")
        self.block_size = block_size

    def __len__(self) -> int:
        return (len(self.data) - 1) // self.block_size

    def __getitem__(self, index: int) -> Any:
        at = index * self.block_size
        chunk = torch.from_numpy(self.data[at : at + self.block_size + 1].astype(np.int64))
        return chunk[:-1].clone(), chunk[1:].clone()


@HEALTHY(also=("STK701",))
def token_blocks() -> Any:
    return DataLoader(Tokens(folder() / "train.bin", 128), 32, shuffle=True, **KEEP)


class RandomTokens(Tokens):
    """A block from anywhere, whatever the index."""

    def __getitem__(self, index: int) -> Any:
        at = int(np.random.randint(0, len(self.data) - self.block_size - 1))
        chunk = torch.from_numpy(self.data[at : at + self.block_size + 1].astype(np.int64))
        return chunk[:-1].clone(), chunk[1:].clone()


@HEALTHY(also=("STK701",))
def random_tokens() -> Any:
    return DataLoader(RandomTokens(folder() / "train.bin", 128), 32, **KEEP)


class Characters(Dataset[Any]):
    """A text in memory, by characters."""

    def __init__(self, text: str, block_size: int) -> None:
        self.stoi = {char: number for number, char in enumerate(sorted(set(text)))}
        self.text, self.block_size = text, block_size

    def __len__(self) -> int:
        return len(self.text) - self.block_size

    def __getitem__(self, index: int) -> Any:
        ids = [self.stoi[char] for char in self.text[index : index + self.block_size + 1]]
        return torch.tensor(ids[:-1]), torch.tensor(ids[1:])


@HEALTHY(also=("STK701",))
def characters() -> Any:
    return DataLoader(
        Characters((folder() / "texts.jsonl").read_text()[:60_000], 64), 32, shuffle=True, **KEEP
    )


class Sentences(Dataset[Any]):
    """Texts of different lengths, padded by a collate_fn."""

    def __init__(self, path: Path) -> None:
        self.rows = [json.loads(line) for line in path.read_text().splitlines()]
        words = sorted({word for row in self.rows for word in row["text"].split()})
        self.vocabulary = {word: number + 1 for number, word in enumerate(words)}

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        row = self.rows[index]
        return torch.tensor([self.vocabulary[word] for word in row["text"].split()]), row["label"]


def pad(batch: Any) -> Any:
    """Texts, their lengths, labels."""
    texts, labels = zip(*batch, strict=True)
    return (
        pad_sequence(list(texts), batch_first=True),
        torch.tensor([len(text) for text in texts]),
        torch.tensor(labels),
    )


@HEALTHY(also=("STK701",))
def sentences() -> Any:
    return DataLoader(Sentences(folder() / "texts.jsonl"), 32, shuffle=True, collate_fn=pad, **KEEP)


class Sounds(Dataset[Any]):
    """A random second of a sound, and its spectrum."""

    def __init__(self, root: Path) -> None:
        self.files = sorted(root.glob("*.wav"))

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Any:
        with wave.open(str(self.files[index])) as sound:
            signal = np.frombuffer(sound.readframes(sound.getnframes()), np.int16).astype(np.float32) / 32768
        at = random.randrange(len(signal) - 8000)
        spectrum = torch.stft(
            torch.from_numpy(signal[at : at + 8000].copy()),
            256,
            window=torch.hann_window(256),
            return_complex=True,
        )
        return spectrum.abs(), index % 10


@HEALTHY()
def sounds() -> Any:
    return DataLoader(Sounds(folder()), 8, shuffle=True, **KEEP)


class Table(Dataset[Any]):
    """A table in an array; a row is cheap."""

    def __init__(self, path: Path) -> None:
        table = np.loadtxt(path, delimiter=",", skiprows=1, dtype=np.float32)
        self.X, self.y = table[:, :-1], table[:, -1].astype(np.int64)

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, index: int) -> Any:
        return torch.from_numpy(self.X[index]), self.y[index]


@HEALTHY()
def table_without_workers() -> Any:
    return DataLoader(Table(folder() / "table.csv"), 64, shuffle=True)


class Mapped(Dataset[Any]):
    """Rows of an .npy file, mapped when a worker first reads."""

    def __init__(self, path: Path) -> None:
        self.path, self.rows = str(path), len(np.load(path, mmap_mode="r"))
        self.array: Any = None

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, index: int) -> Any:
        if self.array is None:
            self.array = np.load(self.path, mmap_mode="r")
        return torch.from_numpy(np.array(self.array[index]))


@HEALTHY()
def mapped_rows() -> Any:
    return DataLoader(Mapped(folder() / "table.npy"), 64, shuffle=True)


class Volumes(Dataset[Any]):
    """Volumes of .npz files, with a random flip."""

    def __init__(self, root: Path) -> None:
        self.files = sorted(root.glob("volume-*.npz"))

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Any:
        with np.load(self.files[index]) as data:
            image, label = data["image"], int(data["label"])
        if np.random.rand() < 0.5:
            image = image[::-1]
        return torch.from_numpy(image.copy())[None], label


@HEALTHY()
def volumes() -> Any:
    return DataLoader(Volumes(folder()), 4, shuffle=True, **KEEP)


class Windows(Dataset[Any]):
    """Windows over a series, for forecasting."""

    def __init__(self, series: np.ndarray[Any, Any], history: int, horizon: int) -> None:
        self.series, self.history, self.horizon = series, history, horizon

    def __len__(self) -> int:
        return len(self.series) - self.history - self.horizon

    def __getitem__(self, index: int) -> Any:
        at = index + self.history
        return self.series[index:at], self.series[at : at + self.horizon]


@HEALTHY()
def series() -> Any:
    return DataLoader(Windows(np.load(folder() / "table.npy"), 48, 12), 64, shuffle=True)


class Pairs(Dataset[Any]):
    """Two pictures of one class or of two, by a lot."""

    def __init__(self, inner: FolderImages) -> None:
        self.inner = inner

    def __len__(self) -> int:
        return len(self.inner)

    def __getitem__(self, index: int) -> Any:
        first, label = self.inner[index]
        second, other = self.inner[random.randrange(len(self.inner))]
        return first, second, float(label == other)


@HEALTHY(also=_OPENCV)
def pairs() -> Any:
    return DataLoader(Pairs(FolderImages(folder() / "pictures")), 8, shuffle=True, **KEEP)


class Interactions(Dataset[Any]):
    """User, item and a sampled negative, for recommendations."""

    def __init__(self, users: int, items: int) -> None:
        rng = np.random.default_rng(1)
        self.users, self.items = rng.integers(0, users, 20_000), rng.integers(0, items, 20_000)
        self.count = items

    def __len__(self) -> int:
        return len(self.users)

    def __getitem__(self, index: int) -> Any:
        return self.users[index], self.items[index], np.random.randint(self.count)


@HEALTHY()
def interactions() -> Any:
    return DataLoader(Interactions(500, 900), 128, shuffle=True)


@HEALTHY()
def tensors() -> Any:
    return DataLoader(TensorDataset(torch.randn(4000, 12), torch.randint(0, 3, (4000,))), 64, shuffle=True)


@HEALTHY(also=_OPENCV)
def split() -> Any:
    train, _ = random_split(FolderImages(folder() / "pictures"), [200, 40], torch.Generator().manual_seed(0))
    return DataLoader(train, 16, shuffle=True, **KEEP)


@HEALTHY(also=_OPENCV)
def validation() -> Any:
    whole = FolderImages(folder() / "pictures")
    return DataLoader(Subset(whole, range(0, len(whole), 2)), 16, **KEEP)


@HEALTHY(also=_OPENCV)
def joined() -> Any:
    both: Any = ConcatDataset([FolderImages(folder() / "pictures"), FolderImages(folder() / "pictures")])
    return DataLoader(both, 16, shuffle=True, **KEEP)


@HEALTHY(also=_OPENCV)
def balanced() -> Any:
    dataset = FolderImages(folder() / "pictures")
    weights = [1.0 + label for _, label in dataset.samples]
    return DataLoader(dataset, 16, sampler=WeightedRandomSampler(weights, len(weights)), **KEEP)


class LazyHandle(Dataset[Any]):
    """A file that each worker opens for itself."""

    def __init__(self, path: Path) -> None:
        self.path, self.file = path, None
        self.rows = path.stat().st_size // 256

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, index: int) -> Any:
        if self.file is None:
            self.file = open(self.path, "rb")  # type: ignore[assignment]  # noqa: SIM115
        self.file.seek(index * 256)  # type: ignore[attr-defined]
        return torch.frombuffer(bytearray(self.file.read(256)), dtype=torch.uint8)  # type: ignore[attr-defined]


@HEALTHY(also=("STK701",))
def lazy_handle() -> Any:
    return DataLoader(LazyHandle(folder() / "train.bin"), 64, shuffle=True, **KEEP)


class Rows(Dataset[Any]):
    """Rows of a csv file, as dictionaries of numbers."""

    def __init__(self, path: Path) -> None:
        with open(path, newline="") as file:
            self.rows = [
                OrderedDict((key, float(value)) for key, value in row.items()) for row in csv.DictReader(file)
            ]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        return torch.tensor(list(self.rows[index].values()))


@HEALTHY()
def csv_rows() -> Any:
    return DataLoader(Rows(folder() / "table.csv"), 64, shuffle=True)
