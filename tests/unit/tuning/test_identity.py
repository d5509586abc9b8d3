"""Keys of datasets and machines: the same for the same work, others for other work, and nothing of the data is looked at."""

from __future__ import annotations

import functools
import importlib.util
import runpy
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import ConcatDataset, IterableDataset, Subset, TensorDataset

import stoker
from stoker._record.dataset_identity import dataset_key, machine_key

SIZE = 64


class Resize:
    def __init__(self, size: Any) -> None:
        self.size = size

    def __call__(self, image: Any) -> Any:
        return image[: self.size]


class Compose:
    def __init__(self, *steps: Any) -> None:
        self.transforms = list(steps)


class Pictures:
    def __init__(self, count: int = 10, transform: Any = None, **more: Any) -> None:
        self.files = [f"{place}.jpg" for place in range(count)]
        self.transform = transform
        vars(self).update(more)

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Any:
        return SIZE


class Stream(IterableDataset[int]):
    def __init__(self, path: str) -> None:
        self.path = path

    def __iter__(self) -> Any:
        return iter(range(3))


def pictures(size: Any = 224, **more: Any) -> Pictures:
    return Pictures(transform=Compose(Resize(size), str), **more)


def test_the_same_work_has_the_same_key() -> None:
    assert dataset_key(pictures()) == dataset_key(pictures())
    assert len(dataset_key(pictures())) == 32


@pytest.mark.parametrize(
    "other",
    [
        pictures(count=11),
        pictures(256),
        pictures((224, 224)),
        pictures(root="/data/other"),
        pictures(_crop=7),
        pictures(mode={"split": "train"}),
        Pictures(transform=Compose(str, Resize(224))),
        Pictures(transform=functools.partial(Resize, 224)),
        Pictures(transform=lambda image: image),
        Subset(pictures(), range(10)),  # type: ignore[arg-type]
        Stream("a"),
        TensorDataset(torch.zeros(10, 3)),
        list(range(10)),
    ],
    ids=lambda each: type(each).__name__,
)
def test_other_work_has_another_key(other: Any) -> None:
    assert dataset_key(other) != dataset_key(pictures())


def test_wrapped_datasets_are_looked_into() -> None:
    keys = {dataset_key(Subset(pictures(size), range(4))) for size in (224, 256, (8, 8))}  # type: ignore[arg-type]
    keys |= {dataset_key(ConcatDataset([pictures(size), pictures(size)])) for size in (224, 256)}  # type: ignore[list-item]
    assert len(keys) == 5


def test_arrays_count_by_their_shape_alone() -> None:
    assert dataset_key(TensorDataset(torch.zeros(9, 3))) == dataset_key(TensorDataset(torch.ones(9, 3)))
    assert dataset_key(TensorDataset(torch.zeros(9, 3))) != dataset_key(TensorDataset(torch.zeros(9, 4)))
    assert dataset_key([torch.zeros(3)] * 100) != dataset_key([torch.zeros(4)] * 100)


def test_what_functions_close_over_and_mention_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    def cropping(size: int) -> Any:
        return lambda image: image[:size]

    assert dataset_key(Pictures(transform=cropping(3))) == dataset_key(Pictures(transform=cropping(3)))
    assert dataset_key(Pictures(transform=cropping(3))) != dataset_key(Pictures(transform=cropping(4)))
    before = dataset_key(pictures())
    monkeypatch.setattr(sys.modules[__name__], "SIZE", 128)
    assert dataset_key(pictures()) != before


def test_what_differs_between_ranks_and_moments_does_not_count() -> None:
    key = dataset_key(pictures())
    passing: list[dict[str, Any]] = [
        {"rank": 3},
        {"_epoch": 2},
        {"seed": 5, "generator": torch.Generator()},
        {"_file": object()},
        {"_cache": {}},
    ]
    for more in passing:
        assert dataset_key(pictures(**more)) == key, more
    assert dataset_key(pictures(names={"b", "a"})) == dataset_key(pictures(names={"a", "b"}))


def test_what_a_transform_remembers_of_a_sample_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """As albumentations' do."""
    library = types.ModuleType("somebodys")
    library.__file__ = "/lib/site-packages/somebodys.py"
    monkeypatch.setitem(sys.modules, "somebodys", library)
    monkeypatch.setattr(Resize, "__module__", "somebodys")
    one = pictures()
    key = dataset_key(one)
    one.transform.transforms[0].params = {"shape": (9, 9, 3)}
    assert dataset_key(one) == key
    assert dataset_key(pictures(256)) != key


def test_sharing_changes_no_key() -> None:
    long = pictures(count=1000)
    key = dataset_key(long)
    assert dataset_key(stoker.share(long)) == key


def test_a_script_is_the_same_whether_it_runs_or_is_loaded(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "class Rows:\n"
        "    def __init__(self):\n"
        "        self.transform = lambda row: row + 1\n"
        "        self.size = (32, 32)\n"
        "    def __len__(self):\n        return 4\n"
        "    def __getitem__(self, index):\n        return index in {'a', 'b'}, __name__\n"
        "rows = Rows()\n"
        "import sys\n"
        f"sys.path.insert(0, {str(Path(stoker.__file__).parent.parent)!r})\n"
        "from stoker._record.dataset_identity import dataset_key\n"
        "key = dataset_key(rows)\n"
    )
    spec = importlib.util.spec_from_file_location("train", script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["train"] = module
    try:
        spec.loader.exec_module(module)
        loaded = module.key
    finally:
        del sys.modules["train"]
    assert runpy.run_path(str(script), run_name="__main__")["key"] == loaded


class Hostile:
    """Everything that can raise, does."""

    def __len__(self) -> int:
        raise OSError("no")

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)


def test_nothing_that_a_dataset_does_reaches_the_caller() -> None:
    assert dataset_key(Hostile()) == dataset_key(Hostile())
    assert dataset_key(pictures(more=Hostile())) != dataset_key(pictures())
    looped = pictures()
    looped.transform.transforms.append(looped)
    assert dataset_key(looped)
    deep: Any = Compose()
    for _ in range(5000):
        deep = Compose(deep, 1 << 400, "x" * 10_000)
    assert dataset_key(pictures(deep=deep))


def test_no_data_is_read() -> None:
    class Untouchable(list[int]):
        def __iter__(self) -> Any:
            raise AssertionError("walked")

        def __getitem__(self, index: Any) -> Any:
            raise AssertionError("read")

    assert dataset_key(pictures(rows=Untouchable(range(10_000))))


def test_a_machine_is_its_hardware(tmp_path: Path) -> None:
    def machine(folder: str, cpu: str = "Xeon", kib: int = 65_800_000, gpu: str = "") -> str:
        proc = tmp_path / folder
        proc.mkdir()
        (proc / "cpuinfo").write_text(f"processor\t: 0\nmodel name\t: {cpu}\ncpu MHz\t: 2100\n\n" * 192)
        (proc / "meminfo").write_text(f"MemTotal:       {kib} kB\n")
        if gpu:
            gpus = proc / "driver" / "nvidia" / "gpus" / "0000:00"
            gpus.mkdir(parents=True)
            (gpus / "information").write_text(f"Model: \t {gpu}\n")
        return machine_key(proc=proc)

    keys = [
        machine("a"),
        machine("b", cpu="EPYC"),
        machine("c", kib=130_000_000),
        machine("d", gpu="H100"),
        machine_key(proc=tmp_path / "nowhere"),
    ]
    assert len(set(keys)) == len(keys)
    assert machine("e", kib=65_700_000) == keys[0]
    assert machine_key() == machine_key()
