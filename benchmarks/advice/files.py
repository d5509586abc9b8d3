"""Files on disk for the datasets here: pictures, tokens, sounds, tables, shards. Made once per run, in the folder of ``FOLDER``."""

from __future__ import annotations

import io
import json
import os
import tarfile
import wave
from pathlib import Path
from typing import Any

import numpy as np

VARIABLE = "STOKER_ADVICE_FOLDER"
PICTURES = 240
TEXTS = 2000
SOUNDS = 64
SHARDS = 4


def folder() -> Path:
    """Return the folder, which ``build`` has filled."""
    return Path(os.environ[VARIABLE])


def build(root: Path) -> None:
    """Fill the folder."""
    os.environ[VARIABLE] = str(root)
    rng = np.random.default_rng(0)
    _pictures(root, rng)
    rng.integers(0, 50_000, 400_000).astype(np.uint16).tofile(root / "train.bin")
    words = ["the", "loader", "reads", "a", "batch", "of", "rows", "and", "waits", "for", "none"]
    with open(root / "texts.jsonl", "w") as file:
        for number in range(TEXTS):
            text = " ".join(rng.choice(words, int(rng.integers(4, 40))))
            file.write(json.dumps({"text": text, "label": number % 5}) + "\n")
    for number in range(SOUNDS):
        with wave.open(str(root / f"sound-{number:03d}.wav"), "wb") as sound:
            sound.setnchannels(1)
            sound.setsampwidth(2)
            sound.setframerate(8000)
            sound.writeframes(rng.integers(-3000, 3000, 12_000, dtype=np.int16).tobytes())
    table = rng.normal(size=(5000, 16)).astype(np.float32)
    np.save(root / "table.npy", table)
    header = ",".join([*(f"f{column}" for column in range(16)), "label"])
    labels = rng.integers(0, 2, len(table))
    np.savetxt(
        root / "table.csv",
        np.column_stack([table, labels]),
        delimiter=",",
        header=header,
        comments="",
        fmt="%.4f",
    )
    for number in range(40):
        np.savez(
            root / f"volume-{number:02d}.npz",
            image=rng.normal(size=(24, 24, 24)).astype(np.float32),
            label=number % 3,
        )
    for shard in range(SHARDS):
        _shard(root, shard)


def _pictures(root: Path, rng: Any) -> None:
    from PIL import Image

    rows = []
    for number in range(PICTURES):
        kind = root / "pictures" / f"class{number % 4}"
        kind.mkdir(parents=True, exist_ok=True)
        coarse = Image.fromarray(rng.integers(0, 256, (12, 16, 3), dtype=np.uint8))
        path = kind / f"{number:04d}.jpg"
        coarse.resize((160, 120)).save(path, "JPEG")
        rows.append(f"{path.relative_to(root)},{number % 4}")
    (root / "labels.csv").write_text("path,label\n" + "\n".join(rows) + "\n")


def _shard(root: Path, shard: int) -> None:
    """A tar file as webdataset reads it: ``key.jpg`` beside ``key.cls``."""
    with tarfile.open(root / f"shard-{shard:02d}.tar", "w") as tar:
        for number in range(shard * 50, shard * 50 + 50):
            source = sorted((root / "pictures").rglob("*.jpg"))[number % PICTURES]
            for ending, data in (("jpg", source.read_bytes()), ("cls", str(number % 4).encode())):
                entry = tarfile.TarInfo(f"{number:06d}.{ending}")
                entry.size = len(data)
                tar.addfile(entry, io.BytesIO(data))
