"""Datasets of libraries, as their guides use them: Hugging Face ``datasets``, MONAI, PyG, webdataset. Healthy."""

from __future__ import annotations

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
