"""Datasets of libraries, as their guides use them: Hugging Face, MONAI, PyG, webdataset, torchvision, timm. Healthy."""

from __future__ import annotations

import functools
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from benchmarks.advice.cases import Cases
from benchmarks.advice.files import folder
from benchmarks.advice.healthy import FolderImages

LIBRARIES = Cases()
_KEEP: dict[str, Any] = {"num_workers": 2, "persistent_workers": True}


@LIBRARIES(also=("STK701",))
def hugging_face_rows() -> Any:
    import datasets

    rows = datasets.Dataset.from_dict(
        {
            "ids": [[number % 50] * 32 for number in range(2000)],
            "label": [number % 2 for number in range(2000)],
        }
    )
    return DataLoader(rows.with_format("torch"), 32, shuffle=True, **_KEEP)


def _decode(rows: dict[str, Any]) -> dict[str, Any]:
    from PIL import Image

    return {
        "pixels": [torch.from_numpy(np.array(Image.open(path).resize((96, 96)))) for path in rows["path"]],
        "label": rows["label"],
    }


@LIBRARIES()
def hugging_face_images() -> Any:
    import datasets

    samples = FolderImages(folder() / "pictures").samples
    rows = datasets.Dataset.from_dict(
        {"path": [path for path, _ in samples], "label": [label for _, label in samples]}
    )
    return DataLoader(rows.with_transform(_decode), 16, shuffle=True, **_KEEP)


@LIBRARIES(also=("STK701",))
def hugging_face_stream() -> Any:
    import datasets

    lines = (folder() / "texts.jsonl").read_text().splitlines(keepends=True)
    paths = []
    for part in range(4):  # distinct files: the library gives each worker some of them
        file = folder() / f"texts-{part}.jsonl"
        file.write_text(
            "".join(f'{{"row": {at}, ' + line[1:] for at, line in enumerate(lines) if at % 4 == part)
        )
        paths.append(str(file))
    stream = datasets.load_dataset(
        "json", data_files=paths, split="train", streaming=True, cache_dir=str(folder() / "cache")
    )
    return DataLoader(stream.remove_columns("text"), 32, **_KEEP)


def volumes_of_monai() -> Any:
    """Volumes with a random flip, whose generator lies on the dataset."""
    from monai.data import Dataset
    from monai.transforms import Compose, RandFlipd, ScaleIntensityd, ToTensord

    paths = sorted(folder().glob("volume-*.npz"))
    rows = [{"image": np.load(path)["image"][None], "label": number % 3} for number, path in enumerate(paths)]
    steps = Compose(
        [ScaleIntensityd("image"), RandFlipd("image", prob=0.5, spatial_axis=0), ToTensord("image")]
    )
    return Dataset(rows, steps)


@LIBRARIES()
def monai_volumes() -> Any:
    from monai.data import DataLoader as MonaiLoader  # it seeds the transforms in each worker

    return MonaiLoader(volumes_of_monai(), batch_size=4, shuffle=True, **_KEEP)


@LIBRARIES()
def graphs() -> Any:
    from torch_geometric.data import Data
    from torch_geometric.loader import DataLoader as GraphLoader

    rng = torch.Generator().manual_seed(0)
    many = [
        Data(
            x=torch.rand(8 + number % 5, 4, generator=rng),
            edge_index=torch.randint(0, 8, (2, 20), generator=rng),
            y=number % 2,
        )
        for number in range(300)
    ]
    return GraphLoader(many, batch_size=16, shuffle=True)


@LIBRARIES()
def web_shards() -> Any:
    import webdataset

    urls = sorted(str(path) for path in folder().glob("shard-*.tar"))
    stream = webdataset.WebDataset(urls, shardshuffle=False).decode("rgb").to_tuple("jpg", "cls")
    return DataLoader(stream, 8, **_KEEP)


@functools.cache
def _with_torchvision() -> None:
    """Make torchvision and timm importable. They lie apart; the operators of a wheel for another torch are declared, not run."""
    sys.path.append(str(Path(sys.prefix) / "apart"))
    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        for name in [each for each in sys.modules if each.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        names = ["nms", "qnms", "deform_conv2d", "_deform_conv2d_backward"]
        for each in ("roi_align", "ps_roi_align", "roi_pool", "ps_roi_pool"):
            names += [each, f"_{each}_backward"]
        _OPERATORS.extend([torch.library.Library("torchvision", "FRAGMENT")])  # type: ignore[no-untyped-call]
        for each in names:
            _OPERATORS[0].define(f"{each}(Tensor it) -> Tensor")


_OPERATORS: list[Any] = []


def _augmented() -> Any:
    from torchvision import transforms

    return transforms.Compose(
        [
            transforms.RandomResizedCrop(64),
            transforms.RandomHorizontalFlip(),
            transforms.ColorJitter(0.2, 0.2, 0.2),
            transforms.ToTensor(),
            transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ]
    )


@LIBRARIES()
def torchvision_folder() -> Any:
    _with_torchvision()
    from torchvision.datasets import ImageFolder

    return DataLoader(ImageFolder(folder() / "pictures", _augmented()), 16, shuffle=True, **_KEEP)


@LIBRARIES()
def torchvision_v2() -> Any:
    _with_torchvision()
    from torchvision.datasets import ImageFolder
    from torchvision.transforms import v2

    steps = v2.Compose(
        [
            v2.ToImage(),
            v2.RandomResizedCrop(64),
            v2.RandomHorizontalFlip(),
            v2.ToDtype(torch.float32, scale=True),
        ]
    )
    return DataLoader(ImageFolder(folder() / "pictures", steps), 16, shuffle=True, **_KEEP)


@LIBRARIES()
def torchvision_made() -> Any:
    _with_torchvision()
    from torchvision.datasets import FakeData

    return DataLoader(FakeData(2000, (3, 96, 96), 10, _augmented()), 16, shuffle=True, **_KEEP)


@LIBRARIES()
def timm_folder() -> Any:
    _with_torchvision()
    from timm.data import create_dataset, create_loader

    pictures = create_dataset("", root=str(folder() / "pictures"), split="train", is_training=True)
    return create_loader(
        pictures,
        (3, 64, 64),
        16,
        is_training=True,
        use_prefetcher=False,
        num_workers=2,
        persistent_workers=True,
    )


@LIBRARIES()
def timm_tar() -> Any:
    _with_torchvision()
    from timm.data import create_dataset, create_loader

    archive = folder() / "pictures.tar"
    if not archive.exists():
        with tarfile.open(archive, "w") as tar:
            for each in sorted((folder() / "pictures").rglob("*.jpg")):
                tar.add(each, str(each.relative_to(folder() / "pictures")))
    pictures = create_dataset("", root=str(archive), is_training=False)
    return create_loader(pictures, (3, 64, 64), 16, is_training=False, use_prefetcher=False, num_workers=2)
