"""Files behind samples: one that changes makes its samples anew, whoever opened it and whenever it changed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from torch.utils.data import Dataset, Subset

import stoker
from stoker._runtime.cache import files
from stoker._runtime.cache.counters import counters


class Texts(Dataset[Any]):
    """Reads one file for each sample, then does what ``after`` says."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in "abc":
            (folder / name).write_text(name)

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> str:
        read = (self.folder / "abc"[index]).read_text()
        after()
        return read


class TextsTogether(Texts):
    def __getitems__(self, indices: list[int]) -> list[str]:
        return [self[index] for index in indices]


def nothing() -> None:
    pass


after: Callable[[], None] = nothing


def replacing(path: Path, text: str) -> Callable[[], None]:
    """Replace a file, when called in this process: the proof's children read it as it was."""

    def replace() -> None:
        path.write_text(text)

    return replace


def test_a_sample_is_not_kept_if_its_file_is_replaced_while_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cached = stoker.cache(Texts(tmp_path), "1MiB")
    monkeypatch.setattr(f"{__name__}.after", replacing(tmp_path / "a", "other"))
    assert cached[0] == "a"
    monkeypatch.undo()
    assert "a file of sample 0 changed while the sample was made" in caplog.text
    assert cached.cache_info()["entries"] == 0
    assert (cached[0], cached[0]) == ("other", "other")
    assert cached.cache_info()["entries"] == 1


def read_text(path: Path) -> str:
    read = path.read_text()
    after()
    return read


def test_a_result_is_not_kept_if_a_file_is_replaced_while_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    path.write_text("a")
    cached = stoker.cached(read_text, "1MiB")
    monkeypatch.setattr(f"{__name__}.after", replacing(path, "other"))
    assert cached(path) == "a"
    assert cached.cache_info()["entries"] == 0
    monkeypatch.undo()
    assert cached(path) == cached(path) == "other"


def test_files_of_a_batch_are_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cached = stoker.cache(TextsTogether(tmp_path), "1MiB")
    assert cached.__getitems__([0, 1]) == ["a", "b"]
    assert cached.cache_info()["entries"] == 2
    (tmp_path / "a").write_text("other")
    assert cached.__getitems__([0, 1]) == ["other", "b"]
    (tmp_path / "b").write_text("another")
    assert cached[1] == "another"
    monkeypatch.setattr(f"{__name__}.after", replacing(tmp_path / "c", "third"))
    assert cached.__getitems__([2]) == ["c"]
    monkeypatch.undo()
    assert cached.__getitems__([2]) == ["third"]


def test_a_subset_of_a_dataset_that_fetches_one_by_one_does_so_too(tmp_path: Path) -> None:
    assert not hasattr(stoker.cache(Subset(Texts(tmp_path), [0, 1]), "1MiB"), "__getitems__")
    assert hasattr(stoker.cache(Subset(TextsTogether(tmp_path), [0, 1]), "1MiB"), "__getitems__")


class Decoded(Dataset[Any]):
    def __init__(self, paths: dict[str, Path]) -> None:
        self.paths = paths
        self.decode: Any = stoker.cached(read_text, "1MiB")

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> str:
        return str(self.decode(self.paths["first"]))


def test_files_of_a_cached_function_count_for_the_sample_around_it(tmp_path: Path) -> None:
    """Whether it reads them, or has the result already."""
    path = tmp_path / "a"
    path.write_text("a")
    for known in (False, True):
        dataset = Decoded({"first": path})
        if known:
            dataset.decode(path)
        cached = stoker.cache(dataset, "1MiB")
        before = path.read_text()
        assert cached[0] == cached[0] == before
        path.write_text(before + "b")
        assert cached[0] == before + "b"


def test_what_reads_too_many_files_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_MOST_FILES", 2)
    for count, kept in ((2, True), (3, False)):
        files.begin()
        for place in range(count):
            path = tmp_path / str(place)
            path.touch()
            path.read_text()
        assert (files.end() is not None) is kept


class Unseen(Dataset[Any]):
    """Its files are opened by C++, of which Python does not tell."""

    def __init__(self, folder: Any, names: Any, first: Callable[[Any, int], str]) -> None:
        self.folder, self.names, self.first = folder, names, first

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> str:
        path = os.path.join(self.folder, self.first(self.names, index))
        return chr(int(torch.from_file(path, size=1, dtype=torch.uint8)))


NAMES: dict[str, tuple[Any, Callable[[Any, int], str]]] = {
    "a list": (["a", "b"], lambda names, index: names[index]),
    "tuples": ([("a", 0), ("b", 1)], lambda names, index: names[index][0]),
    "an array": (np.array(["a", "b"]), lambda names, index: names[index]),
    "a table": (
        pandas.DataFrame({"label": [3, 4], "file": ["a", "b"]}),
        lambda names, index: names.iloc[index, 1],
    ),
    "a series": (pandas.Series(["a", "b"], index=[7, 8]), lambda names, index: names.iloc[index]),
}


@pytest.mark.parametrize("kind", [str, Path])
@pytest.mark.parametrize("names", NAMES)
def test_names_relative_to_a_folder_of_the_dataset_are_files_of_the_samples(
    tmp_path: Path, names: str, kind: Callable[[Path], Any]
) -> None:
    for name in "ab":
        (tmp_path / name).write_text(name)
    cached = stoker.cache(Unseen(kind(tmp_path), *NAMES[names]), "1MiB")
    assert [cached[index] for index in (0, 1, 0, 1)] == ["a", "b", "a", "b"]
    assert cached.cache_info()["entries"] == 2
    (tmp_path / "b").write_text("other")
    before = counters().totals()
    assert [cached[index] for index in (0, 1, 0, 1)] == ["a", "o", "a", "o"]
    assert counters().totals().misses - before.misses == 1


class Scaled(Dataset[float]):
    def __init__(self) -> None:
        self.scale = np.array(2.5)

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> float:
        return index * float(self.scale)


def test_an_array_without_dimensions_is_no_list_of_paths() -> None:
    cached = stoker.cache(Scaled(), "1MiB")
    assert [cached[index] for index in (1, 2, 1)] == [2.5, 5.0, 2.5]
