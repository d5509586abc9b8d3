"""Files of sample caches: a store whose machine was restarted, so that everything in it is checked before it is used."""

from __future__ import annotations

import os
import tempfile
import zlib
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import numpy as np
import torch

from stoker._runtime.cache.dataset import CachedDataset, CacheFacts, identity_of_cut, tag_of
from stoker._runtime.cache.identity import of_dataset
from stoker._runtime.cache.storage import attaching, backing, sample_codec
from stoker._runtime.cache.storage import store as store_module
from stoker._runtime.cache.storage.attaching import StoreHandle, StorePlan
from stoker._runtime.cache.storage.store import HEADER_BYTES, EntryKey, Store, data_start
from tests.fuzz import mutation
from tests.fuzz.format import Format

_SLOTS = 4
_SAMPLES: tuple[Any, ...] = ((torch.arange(20), 3), {"x": torch.ones(2, 3), "y": "text"}, [b"bytes", None])
_KEYS = tuple(EntryKey(place, 7, 1000 + place) for place in range(_SLOTS))
_WORDS = 8 * _SLOTS


def _plan(folder: Path) -> StorePlan:
    return StorePlan("ab" * 12, _SLOTS, 1 << 20, bytes(32), str(folder / "cache"), "label")


def _opened(folder: Path) -> Store:
    with mock.patch.dict(os.environ, {"XDG_RUNTIME_DIR": str(folder)}):  # where the lock is
        return attaching._open(_plan(folder), None)


def _seeds() -> list[bytes]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = _opened(folder)
        for key, sample in zip(_KEYS, _SAMPLES, strict=False):
            _append(store, key, sample)
        store.close()
        return [backing.file_in(folder / "cache", "label").read_bytes()]


def _append(store: Store, key: EntryKey, sample: Any) -> int:
    encoded = sample_codec.encode(sample)
    return store.append(key.first, key, encoded.data, encoded.root, b"", 5)


def _read(data: bytes, folder: Path) -> None:
    place = folder / "cache"
    place.mkdir(mode=0o700)
    path = backing.file_in(place, "label")
    path.write_bytes(data)
    path.chmod(0o600)
    store = _opened(folder)
    try:
        store._boot += 1
        for key, sample in zip(_KEYS, _SAMPLES, strict=False):
            entry = store.find(key.first, key)
            if entry is None:
                continue
            encoded = sample_codec.encode(sample)
            if bytes(store.view[entry.start : entry.root_start]) != b"".join(map(bytes, encoded.data)):
                raise AssertionError("a damaged sample was found")
            if bytes(store.view[entry.root_start : entry.root_stop]) != encoded.root:
                raise AssertionError("a sample with a damaged root was found")
        _append(store, _KEYS[3], 7)
    finally:
        store.close()


def _mutate(dice: Random, data: bytes) -> bytes:
    """Of the header, the index, the entries, or anywhere; the header's checksum is mostly right again."""
    start = data_start(_SLOTS)
    sealed = store_module._HEADER.size
    chosen = dice.random()
    if chosen < 0.1:
        return mutation.any_bytes(dice, data)
    if chosen < 0.3:
        body = mutation.any_bytes(dice, data[:sealed])[:sealed].ljust(sealed, b"\0")
        return body + zlib.crc32(body).to_bytes(4, "little") + data[sealed + 4 :]
    if chosen < 0.6:
        index = mutation.any_bytes(dice, data[HEADER_BYTES : HEADER_BYTES + _WORDS])[:_WORDS]
        return data[:HEADER_BYTES] + index.ljust(_WORDS, b"\0") + data[HEADER_BYTES + _WORDS :]
    return data[:start] + mutation.any_bytes(dice, data[start:])


class _Rows:
    """Samples with files of their own, and a transform to cut at. None is pickled: the guard tells of what is unpickled."""

    def __init__(self) -> None:
        self.samples = [(str(_ROOT / name), place) for place, name in enumerate(_FILES)]
        self.transform = _double

    def __len__(self) -> int:
        return _SLOTS

    def __getitem__(self, index: int) -> Any:
        path, place = self.samples[index]
        x = self.transform(torch.arange(10 + place))
        return {"x": x, "path": path, "place": place, "ones": np.ones(5 + place)}


def _double(value: torch.Tensor) -> torch.Tensor:
    return value * 2


_ROOT = Path(__file__).parents[3]
_FILES = ("README.md", "CHANGELOG.md", "SECURITY.md", "ARCHITECTURE.md")
_BEFORE = (None, "transform")


def _made(folder: Path, before: str | None) -> CachedDataset:
    """As ``stoker.cache`` makes it, without the proof, which forks."""
    found = of_dataset(_Rows())
    steps = None if before is None else 0
    identity = identity_of_cut(found.whole(), before, steps)
    handle = StoreHandle(
        StorePlan("cd" * 12, _SLOTS, 1 << 20, identity, str(folder / "cache"), before or "whole")
    )
    facts = CacheFacts(
        _SLOTS, found.whole(), tag_of(identity), found.parts, frozenset(), before, steps, 0.0, {}
    )
    return CachedDataset(_Rows(), handle, facts)


def _sample_seeds() -> list[bytes]:
    """A file with whole samples, and one with those that are cut at the transform. The first byte says which."""
    made = []
    with tempfile.TemporaryDirectory() as name, mock.patch.dict(os.environ, {"XDG_RUNTIME_DIR": name}):
        for place, before in enumerate(_BEFORE):
            cached = _made(Path(name), before)
            for index in range(_SLOTS):
                cached[index]
            cached._handle.open().close()
            made.append(bytes([place]) + backing.file_in(Path(name, "cache"), before or "whole").read_bytes())
    return made


def _fetch(data: bytes, folder: Path) -> None:
    """Fetch samples of a dataset whose file was damaged: each is the one that the dataset makes."""
    before = _BEFORE[data[0] % 2] if data else None
    place = folder / "cache"
    place.mkdir(mode=0o700)
    path = backing.file_in(place, before or "whole")
    path.write_bytes(data[1:])
    path.chmod(0o600)
    plain = _Rows()
    with mock.patch.dict(os.environ, {"XDG_RUNTIME_DIR": str(folder)}):
        cached = _made(folder, before)
        store = cached._handle.open()
    try:
        store._boot += 1
        for index in (*range(_SLOTS), *range(_SLOTS)):
            for fetch in (cached.__getitem__, cached.__stoker_views__()):
                if sample_codec.encode(fetch(index))[:2] != sample_codec.encode(plain[index])[:2]:
                    raise AssertionError(f"sample {index} is another one")
    finally:
        store.close()


def _mutate_samples(dice: Random, data: bytes) -> bytes:
    return data[:1] + _mutate(dice, data[1:])


FORMATS = (
    Format("cache-store", _seeds, _read, (OSError,), _mutate, weight=2),
    Format("cache-samples", _sample_seeds, _fetch, (OSError,), _mutate_samples, weight=2),
)
