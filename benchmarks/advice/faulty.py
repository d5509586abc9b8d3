"""The same kinds of datasets with one fault each, seeded as people make them. The decorator names the codes that must be found."""

from __future__ import annotations

import functools
import multiprocessing
import os
import random
import signal
import sqlite3
import threading
import time
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler

from benchmarks.advice.cases import Cases
from benchmarks.advice.files import folder
from benchmarks.advice.healthy import CsvImages, FolderImages, Sentences, ToTensor

FAULTY = Cases()
_KEEP: dict[str, Any] = {"num_workers": 2, "persistent_workers": True}
_CHEAP = ("STK701",)
"""Rows that cost nothing: that workers do not help is true of them, too."""


class Images(FolderImages):
    """The folder of pictures; a fault is added below."""

    def __init__(self) -> None:
        super().__init__(folder() / "pictures")


@FAULTY("STK102")
def lambda_under_spawn() -> Any:
    dataset = CsvImages(folder(), lambda image: torch.from_numpy(np.array(image)))
    return DataLoader(dataset, 16, shuffle=True, multiprocessing_context="spawn", **_KEEP)


@FAULTY("STK101")
def generator_under_spawn() -> Any:
    dataset = Images()
    dataset.stream = (number for number in range(10))  # type: ignore[attr-defined]
    return DataLoader(dataset, 16, shuffle=True, multiprocessing_context="spawn", **_KEEP)


class EagerHandle(Dataset[Any]):
    """Opens its file in __init__, and seeks in it in every worker."""

    def __init__(self) -> None:
        self.file = open(folder() / "train.bin", "rb")  # noqa: SIM115

    def __len__(self) -> int:
        return 3000

    def __getitem__(self, index: int) -> Any:
        self.file.seek(index * 256)
        return torch.frombuffer(bytearray(self.file.read(256)), dtype=torch.uint8)


@FAULTY("STK103", also=_CHEAP)
def open_handle() -> Any:
    return DataLoader(EagerHandle(), 64, shuffle=True, **_KEEP)


class Locked(Images):
    """A thread that refreshes something, and its lock."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()
        self.thread = threading.Thread(target=time.sleep, args=(600,), daemon=True)
        self.thread.start()


@FAULTY("STK104", also=("STK303",))
def held_thread() -> Any:
    return DataLoader(Locked(), 16, shuffle=True, **_KEEP)


class ManyTensors(Dataset[Any]):
    """A tensor per row, sent to spawned workers."""

    def __init__(self) -> None:
        self.rows = [torch.randn(16) for _ in range(60_000)]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.rows[index]


@FAULTY("STK105", also=("STK701", "STK601", "STK106"))
def many_tensors() -> Any:
    return DataLoader(ManyTensors(), 64, shuffle=True, multiprocessing_context="spawn", **_KEEP)


class Heavy(Dataset[Any]):
    """An array of 400 MB in memory, pickled for each spawned worker."""

    def __init__(self) -> None:
        self.rows = np.ones((100_000, 1000), np.float32)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        return self.rows[index]


@FAULTY("STK106", also=(*_CHEAP, "STK108"))
def slow_travel() -> Any:
    return DataLoader(Heavy(), 64, shuffle=True, multiprocessing_context="spawn", **_KEEP)


class Weighted(Images):
    """Keeps a parameter on the dataset."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(3, 1, 1))

    def __getitem__(self, index: int) -> Any:
        image, label = super().__getitem__(index)
        return image * self.scale, label


@FAULTY("STK107", also=("STK710", "STK406"))
def gradient() -> Any:
    return DataLoader(Weighted(), 16, shuffle=True, **_KEEP)


class OneRagged(Images):
    """Most pictures have one size, some another: nobody resizes them."""

    def __getitem__(self, index: int) -> Any:
        image, label = super().__getitem__(index)
        return (image[:, : 60 + index % 3 * 10]), label


@FAULTY("STK401")
def ragged() -> Any:
    return DataLoader(OneRagged(), 16, shuffle=True, **_KEEP)


@FAULTY("STK401", also=_CHEAP)
def unpadded() -> Any:
    return DataLoader(Sentences(folder() / "texts.jsonl"), 32, shuffle=True, **_KEEP)


class SometimesNone(Images):
    """Returns None where a picture could not be read."""

    def __getitem__(self, index: int) -> Any:
        return None if index % 6 == 5 else super().__getitem__(index)


@FAULTY("STK402")
def none_samples() -> Any:
    return DataLoader(SometimesNone(), 16, shuffle=True, **_KEEP)


class MixedLabels(Images):
    """A label is a number or a tensor."""

    def __getitem__(self, index: int) -> Any:
        image, label = super().__getitem__(index)
        return image, (torch.tensor(label) if index % 2 else str(label))


@FAULTY("STK403")
def mixed_types() -> Any:
    return DataLoader(MixedLabels(), 16, shuffle=True, **_KEEP)


class Missing(Images):
    """Some files of the list are gone."""

    def __init__(self) -> None:
        super().__init__()
        self.samples = [
            (path + ".gone" if number % 7 == 3 else path, label)
            for number, (path, label) in enumerate(self.samples)
        ]

    def __getitem__(self, index: int) -> Any:
        from PIL import Image

        path, label = self.samples[index]
        return torch.from_numpy(np.array(Image.open(path))), label


@FAULTY("STK404")
def missing_files() -> Any:
    return DataLoader(Missing(), 16, shuffle=True, **_KEEP)


class Exhausted(Images):
    """Takes from an iterator that ends."""

    def __getitem__(self, index: int) -> Any:
        if index % 5 == 4:
            return next(iter([]))
        return super().__getitem__(index)


@FAULTY("STK405")
def stop_iteration() -> Any:
    return DataLoader(Exhausted(), 16, shuffle=True, **_KEEP)


def with_function(batch: Any) -> Any:
    """A batch that no pickle takes."""
    return {"rows": len(batch), "again": lambda: batch}


@FAULTY("STK406")
def unsendable_batch() -> Any:
    return DataLoader(Images(), 16, shuffle=True, collate_fn=with_function, **_KEEP)


class Views(Dataset[Any]):
    """A row of a large tensor, sent with all of it by a collate_fn that keeps lists."""

    def __init__(self) -> None:
        self.all = torch.randn(4000, 2000)

    def __len__(self) -> int:
        return len(self.all)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.all.clone()[index]


def as_list(batch: Any) -> Any:
    """No stacking."""
    return list(batch)


@FAULTY("STK407", also=("STK604", "STK705", "STK408", "STK603", "STK701"))
def view_bloat() -> Any:
    return DataLoader(Views(), 4, shuffle=True, collate_fn=as_list, **_KEEP)


class ManyParts(Images):
    """A dict of two hundred small tensors."""

    def __getitem__(self, index: int) -> Any:
        return {f"feature{number}": torch.tensor([float(number)]) for number in range(200)}


@FAULTY("STK408", also=_CHEAP)
def tiny_tensors() -> Any:
    return DataLoader(ManyParts(), 16, shuffle=True, **_KEEP)


class Hanging(Images):
    """One sample waits for ever, on a server that does not answer."""

    def __getitem__(self, index: int) -> Any:
        if index == 0:
            time.sleep(10_000)
        return super().__getitem__(index)


@FAULTY("STK411")
def hanging() -> Any:
    return DataLoader(Hanging(), 16, **_KEEP)


class Deadly(Images):
    """One sample makes a native library crash."""

    def __getitem__(self, index: int) -> Any:
        if index == 0:
            os.kill(os.getpid(), signal.SIGSEGV)
        return super().__getitem__(index)


@FAULTY("STK412")
def deadly() -> Any:
    return DataLoader(Deadly(), 16, **_KEEP)


class OwnGenerator(Images):
    """A generator of its own, the same in every forked worker."""

    def __init__(self) -> None:
        super().__init__()
        self.rng = np.random.default_rng(0)

    def __getitem__(self, index: int) -> Any:
        image, label = super().__getitem__(index)
        at = int(self.rng.integers(0, 32))
        return image[:, at : at + 64, :64].clone(), label


@FAULTY("STK501")
def repeated_randomness() -> Any:
    return DataLoader(OwnGenerator(), 16, shuffle=True, **_KEEP)


class Whole(IterableDataset[Any]):
    """A stream that does not ask which worker it is in."""

    def __iter__(self) -> Any:
        for number in range(4000):
            yield torch.full((8,), number)


@FAULTY("STK502", also=_CHEAP)
def unsharded_stream() -> Any:
    return DataLoader(Whole(), 32, **_KEEP)


@FAULTY("STK503", also=("STK701",))
def dropped() -> Any:
    few = torch.utils.data.Subset(Images(), range(60))
    return DataLoader(few, 32, shuffle=True, drop_last=True, **_KEEP)


class Staged(Images):
    """A curriculum: the trainer sets the epoch, and persistent workers do not see it."""

    def __init__(self) -> None:
        super().__init__()
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Called between epochs."""
        self.epoch = epoch

    def __getitem__(self, index: int) -> Any:
        image, label = super().__getitem__(index)
        return image[:, self.epoch % 8 :][:, :64], label


@FAULTY("STK504")
def stale_workers() -> Any:
    return DataLoader(Staged(), 16, shuffle=True, **_KEEP)


class BadOrder(Sampler[int]):
    """Counts from one."""

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return self.rows

    def __iter__(self) -> Any:
        return iter(range(1, self.rows + 1))


@FAULTY("STK511", also=("STK404",))
def bad_sampler() -> Any:
    dataset = Images()
    return DataLoader(dataset, 16, sampler=BadOrder(len(dataset)), **_KEEP)


class Wrong(Whole):
    """Says that it is longer than it is."""

    def __len__(self) -> int:
        return 9000

    def __iter__(self) -> Any:
        info = torch.utils.data.get_worker_info()
        number, of = (info.id, info.num_workers) if info else (0, 1)
        for row in range(number, 400, of):
            yield torch.full((8,), row)


@FAULTY("STK510", also=("STK503", "STK701"))
def wrong_length() -> Any:
    return DataLoader(Wrong(), 32, **_KEEP)


class Broken(Wrong):
    """A generator that ends at the first bad record."""

    def __len__(self) -> int:
        raise TypeError

    def __iter__(self) -> Any:
        for row in range(400):
            if row == 5:
                raise ValueError("bad record 5")
            yield torch.full((8,), row)


@FAULTY("STK509", also=("STK502", "STK404", "STK701"))
def broken_stream() -> Any:
    return DataLoader(Broken(), 32, **_KEEP)


class Frozen(Images):
    """Caches augmented samples, so augmentations never change."""

    def __init__(self) -> None:
        super().__init__()
        self.cache: dict[int, Any] = {}

    def __getitem__(self, index: int) -> Any:
        if index not in self.cache:
            image, label = super().__getitem__(index)
            at = random.randrange(32)
            self.cache[index] = image[:, at : at + 64, :64].clone(), label
        return self.cache[index]


@FAULTY("STK513", also=("STK607", "STK603"))
def frozen_randomness() -> Any:
    return DataLoader(Frozen(), 16, shuffle=True, **_KEEP)


class PerWorkerCache(Images):
    """Decodes each picture once, in each worker."""

    def __init__(self) -> None:
        super().__init__()
        self.samples = self.samples * 200
        self.cache: dict[int, Any] = {}

    def __getitem__(self, index: int) -> Any:
        if index not in self.cache:
            self.cache[index] = super().__getitem__(index)
        return self.cache[index]


@FAULTY("STK607", also=("STK603",))
def worker_cache() -> Any:
    return DataLoader(PerWorkerCache(), 16, shuffle=True, **_KEEP)


class LruCached(Images):
    """The same through functools."""

    def __init__(self) -> None:
        super().__init__()
        self.samples = self.samples * 200
        self.read = functools.lru_cache(maxsize=None)(super().__getitem__)

    def __getitem__(self, index: int) -> Any:
        return self.read(index)


@FAULTY("STK607", also=("STK603",))
def lru_cache() -> Any:
    return DataLoader(LruCached(), 16, shuffle=True, **_KEEP)


class Tuples(Dataset[Any]):
    """400,000 (path, label) tuples in a list."""

    def __init__(self) -> None:
        self.samples = [
            (f"/data/train/class{number % 1000}/{number:08d}.jpg", number % 1000) for number in range(400_000)
        ]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        path, label = self.samples[index]
        return len(path), label


@FAULTY("STK601", also=("STK701", "STK702"))
def path_tuples() -> Any:
    return DataLoader(Tuples(), 64, shuffle=True, num_workers=4, persistent_workers=True)


class Leaking(Images):
    """Keeps 4 MB of every sample."""

    def __init__(self) -> None:
        super().__init__()
        self.samples = self.samples * 2000
        self.kept: list[Any] = []

    def __getitem__(self, index: int) -> Any:
        self.kept.append(np.ones(500_000))
        return super().__getitem__(index)


@FAULTY("STK603", also=("STK607", "STK705"))
def leaking() -> Any:
    return DataLoader(Leaking(), 16, shuffle=True, **_KEEP)


class Huge(Dataset[Any]):
    """Samples of 64 MB: a window of batches fills the memory."""

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.zeros(16, 1024, 1024)


@FAULTY("STK604", also=("STK701", "STK603", "STK705"))
def full_window() -> Any:
    return DataLoader(Huge(), 8, num_workers=2, prefetch_factor=16, persistent_workers=True)


class Cheap(Dataset[Any]):
    """Ready-made rows."""

    def __init__(self, rows: int = 4000) -> None:
        self.rows = torch.randn(rows, 8)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.rows[index]


@FAULTY("STK701")
def needless_workers() -> Any:
    return DataLoader(Cheap(), 16, shuffle=True, num_workers=4, persistent_workers=True)


class Counting(Dataset[Any]):
    """Computes in Python."""

    def __len__(self) -> int:
        return 4000

    def __getitem__(self, index: int) -> int:
        total = 0
        for number in range(40_000):
            total += number & index
        return total


@FAULTY("STK702", also=("STK705",))
def too_many_workers() -> Any:
    return DataLoader(Counting(), 16, shuffle=True, num_workers=24, persistent_workers=True)


@FAULTY("STK705", also=("STK702",))
def costly_samples() -> Any:
    return DataLoader(Costly(), 16, shuffle=True, **_KEEP)


class Costly(Counting):
    """60 ms a sample."""

    def __getitem__(self, index: int) -> int:
        return sum(super(Costly, self).__getitem__(index) for _ in range(30))


@FAULTY("STK706", also=("STK702",))
def cold_epochs() -> Any:
    few = torch.utils.data.Subset(Images(), range(64))
    return DataLoader(few, 16, shuffle=True, num_workers=4)


class Stragglers(Dataset[Any]):
    """Every sixth sample waits half a second for a slow disk."""

    def __len__(self) -> int:
        return 3000

    def __getitem__(self, index: int) -> int:
        time.sleep(0.4 if index % 25 == 7 else 0.001)
        return index


@FAULTY("STK707", also=("STK705",))
def stragglers() -> Any:
    return DataLoader(Stragglers(), 8, **_KEEP)


class FloatImages(Images):
    """uint8 pixels made float in the worker, four times as many bytes."""

    def __getitem__(self, index: int) -> Any:
        image, label = super().__getitem__(index)
        big = torch.nn.functional.interpolate(image[None].float(), (512, 512))[0]
        return big.round().clamp(0, 255) / 255, label


@FAULTY("STK710", also=("STK703", "STK705", "STK307"))
def float_images() -> Any:
    return DataLoader(FloatImages(), 16, shuffle=True, pin_memory=True, **_KEEP)


class Threads(Dataset[Any]):
    """OpenCV with all its threads in every worker."""

    def __len__(self) -> int:
        return 2000

    def __getitem__(self, index: int) -> Any:
        import cv2

        image = np.full((1500, 1500, 3), index % 255, np.uint8)
        return torch.from_numpy(cv2.resize(cv2.GaussianBlur(image, (31, 31), 0), (64, 64)))


@FAULTY("STK307", also=("STK705",))
def oversubscribed() -> Any:
    return DataLoader(Threads(), 8, shuffle=True, num_workers=4, persistent_workers=True)


class LongOrder(Dataset[Any]):
    """A hundred million rows."""

    def __len__(self) -> int:
        return 100_000_000

    def __getitem__(self, index: int) -> Any:
        time.sleep(0.0005)
        return index


@FAULTY("STK605")
def big_permutation() -> Any:
    return DataLoader(LongOrder(), 64, shuffle=True, **_KEEP)


@FAULTY("STK505")
def forgotten_set_epoch() -> Any:
    from torch.utils.data.distributed import DistributedSampler

    dataset = Images()
    return DataLoader(dataset, 16, sampler=DistributedSampler(dataset, num_replicas=2, rank=0), **_KEEP)


class Raising(Images):
    """Raises an exception of a class that no other process can import."""

    def __getitem__(self, index: int) -> Any:
        class Truncated(Exception):
            pass

        if index % 6 == 2:
            raise Truncated(f"picture {index}")
        return super().__getitem__(index)


@FAULTY("STK410", also=("STK404",))
def bad_exception() -> Any:
    return DataLoader(Raising(), 16, shuffle=True, **_KEEP)


class EagerPictures(Dataset[Any]):
    """Decodes everything in __init__."""

    def __init__(self) -> None:
        inner = CsvImages(folder(), ToTensor())
        self.rows = [inner[at % len(inner)] for at in range(14_000)]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        return self.rows[index]


class EagerFiles(Dataset[Any]):
    """Opens every picture in __init__, several times as many as there are."""

    def __init__(self) -> None:
        from PIL import Image

        paths = sorted((folder() / "pictures").rglob("*.jpg")) * 24
        self.images = [np.array(Image.open(path).resize((160, 160))) for path in paths]

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Any:
        return torch.from_numpy(self.images[index])


@FAULTY("STK108", also=("STK701", "STK601"))
def eager_files() -> Any:
    return DataLoader(EagerFiles(), 16, shuffle=True, **_KEEP)


@FAULTY("STK108", also=("STK701", "STK601"))
def eager_data() -> Any:
    return DataLoader(EagerPictures(), 16, shuffle=True, **_KEEP)


class Entropy(Images):
    """A generator for each sample, seeded by nobody: no seed brings a run back."""

    def __getitem__(self, index: int) -> Any:
        image, label = super().__getitem__(index)
        at = int(np.random.default_rng().integers(0, 32))
        return image[:, at : at + 64, :64].clone(), label


@FAULTY("STK507")
def unseeded() -> Any:
    return DataLoader(Entropy(), 16, shuffle=True, **_KEEP)


@FAULTY("STK103")
def open_pipe() -> Any:
    dataset = Images()
    dataset.ends = multiprocessing.Pipe()  # type: ignore[attr-defined]
    return DataLoader(dataset, 16, shuffle=True, **_KEEP)


class Database(Dataset[Any]):
    """Rows of a database whose connection was made in __init__."""

    def __init__(self) -> None:
        self.base = sqlite3.connect(folder() / "rows.db", check_same_thread=False)
        self.base.execute("create table if not exists rows (number integer)")
        if not self.base.execute("select count(*) from rows").fetchone()[0]:
            self.base.executemany("insert into rows values (?)", [(number,) for number in range(2000)])
            self.base.commit()

    def __len__(self) -> int:
        return 2000

    def __getitem__(self, index: int) -> Any:
        return self.base.execute("select number from rows where rowid = ?", (index + 1,)).fetchone()[0]


@FAULTY("STK103", also=_CHEAP)
def open_database() -> Any:
    return DataLoader(Database(), 64, shuffle=True, **_KEEP)


@FAULTY("STK501", also=("STK108",))
def monai_with_torchs_loader() -> Any:
    from benchmarks.advice.libraries import volumes_of_monai

    return DataLoader(volumes_of_monai(), 4, shuffle=True, **_KEEP)


class Albumented(FolderImages):
    """OpenCV and albumentations 2, as in their guide: its generator lies on the dataset, and forked workers copy it."""

    def __init__(self, root: Any) -> None:
        super().__init__(root)
        import albumentations as A

        self.steps = A.Compose(
            [A.HorizontalFlip(p=0.5), A.RandomCrop(64, 64), A.RandomBrightnessContrast(p=0.3)]
        )

    def __getitem__(self, index: int) -> Any:
        image, target = super().__getitem__(index)
        return torch.from_numpy(self.steps(image=image.permute(1, 2, 0).numpy())["image"]).permute(
            2, 0, 1
        ).contiguous(), target


@FAULTY("STK501")
def albumentations_images() -> Any:
    return DataLoader(Albumented(folder() / "pictures"), 16, shuffle=True, **_KEEP)
