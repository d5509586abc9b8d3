"""What the cache does with samples: bit for bit the same, never changed by a user, and refused if they are random."""

from __future__ import annotations

import gc
import logging
import os
import random
import threading
from collections import namedtuple
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, IterableDataset, Subset

import stoker
from stoker._runtime.cache.counters import CacheTotals, counters
from stoker._runtime.cache.proving.apart import ChildLost, run_apart
from stoker._runtime.cache.proving.checking import made_again
from stoker._runtime.cache.storage import sample_codec
from stoker.errors import CacheMismatch, CacheRefused, RandomSamples, UnsendableError

Pair = namedtuple("Pair", "x y")
shared = torch.arange(6.0)


def since(before: CacheTotals) -> tuple[int, int, int]:
    """Hits, misses and passed samples of this thread since then."""
    now = counters().totals()
    return now.hits - before.hits, now.misses - before.misses, now.passed - before.passed


def raising(error: Exception) -> None:
    raise error


def bits(sample: Any) -> bytes:
    encoded = sample_codec.encode(sample)
    return b"".join([*map(bytes, encoded.data), encoded.root])


class Rows(Dataset):
    """Calls an entry that is a function."""

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = self.rows[index]
        return row() if callable(row) else row


class Compose:
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, value):
        for each in self.transforms:
            value = each(value)
        return value


class Twice:
    def __call__(self, value):
        return value * 2


class RandomShift:
    def __call__(self, value):
        return value + random.random()


class Pictures(Dataset):
    def __init__(self, transform, length=6):
        self.transform = transform
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return self.transform(torch.full((3,), float(index))), index


SAMPLES = {
    "tensor and label": lambda: (torch.arange(12.0).view(3, 4), 3),
    "list": lambda: [torch.ones(2, dtype=torch.bfloat16), "text", None, 2.5],
    "dict": lambda: {"a": np.arange(5), "b": True, "c": b"bytes"},
    "one tensor": lambda: torch.arange(3, dtype=torch.int8),
    "scalar tensor": lambda: torch.tensor(7),
    "empty": lambda: (torch.empty(0, 3), np.empty((2, 0))),
    "channels last": lambda: torch.arange(48.0).view(1, 3, 4, 4).to(memory_format=torch.channels_last),
    "expanded": lambda: torch.ones(1).expand(1000),
    "transposed array": lambda: np.arange(6).reshape(2, 3).T,
    "strings": lambda: np.array(["a", "bc"]),
    "numpy scalar": lambda: (np.float32(3), np.int64(4)),
    "named": lambda: Pair(torch.ones(3), {"y": [torch.zeros(2)]}),
    "aliases": lambda: (shared[:3], shared[3:]),
    "picture": lambda: (Image.fromarray(np.arange(48, dtype=np.uint8).reshape(4, 4, 3)), 1),
    "complex": lambda: torch.arange(3) * 1j,
    "nothing": lambda: None,
    "unaligned": lambda: (torch.ones(3, dtype=torch.int8), torch.ones(3, dtype=torch.float64)),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_comes_back_bit_for_bit(name: str) -> None:
    sample = SAMPLES[name]()
    encoded = sample_codec.encode(sample)
    data = b"".join(map(bytes, encoded.data))
    for base in (0, 64):
        buffer = bytearray(bytes(base) + data)
        found = sample_codec.decode(buffer, base, encoded.root)
        assert bits(found) == bits(sample)
        assert type(found) is type(sample)
    if isinstance(sample, torch.Tensor):
        assert found.dtype == sample.dtype
        assert found.stride() == sample.stride()
        assert torch.equal(found, sample)


def test_parts_that_share_memory_share_it_still() -> None:
    encoded = sample_codec.encode((shared[:3], shared))
    part, whole = sample_codec.decode(bytearray(b"".join(map(bytes, encoded.data))), 0, encoded.root)
    part[0] = 9
    assert whole[0] == 9


def test_what_cannot_be_kept_is_named() -> None:
    with pytest.raises(UnsendableError, match=r"\[1\]"):
        sample_codec.encode((1, (each for each in "ab")))


def test_a_hit_is_a_fresh_copy() -> None:
    cached = stoker.cache(Rows([lambda: (torch.zeros(3), np.zeros(3))] * 2), "1MiB")
    before = counters().totals()
    for _ in range(3):
        tensor, array = cached[1]
        assert not tensor.any()
        assert not array.any()
        tensor += 1
        array += 1
    assert since(before) == (2, 1, 0)


def test_it_looks_like_the_dataset() -> None:
    rows: Any = Rows([1, 2, 3])
    rows.classes = ["a", "b"]
    cached = stoker.cache(rows, "1MiB")
    cached.epoch = 3
    assert len(cached) == 3
    assert (cached.classes, rows.epoch) == (["a", "b"], 3)
    assert [Subset(cached, [2, 0])[place] for place in range(2)] == [3, 1]
    assert cached[np.int64(2)] == 3
    assert cached[torch.tensor(1)] == 2
    assert cached[-1] == 3, "as the dataset answers it"
    with pytest.raises(IndexError):
        cached[3]
    with pytest.raises(AttributeError, match="nothing"):
        _ = cached.nothing


def test_a_sample_that_cannot_be_kept_is_made_each_time(caplog: pytest.LogCaptureFixture) -> None:
    cached = stoker.cache(Rows([lambda: (each for each in "ab"), 1]), "1MiB")
    before = counters().totals()
    assert [list(cached[0]) for _ in range(2)] == [["a", "b"]] * 2
    assert since(before) == (0, 2, 2)
    assert len(caplog.records) == 1
    assert "sample 0 cannot be kept in the cache, so it is made each time: sample: generator" in caplog.text
    assert "generator" in caplog.text


def test_random_samples_are_refused_with_the_line_to_write() -> None:
    with pytest.raises(RandomSamples) as caught:
        stoker.cache(Pictures(Compose([Twice(), RandomShift()])), "1MiB")
    assert caught.value.draws == ["dataset.transform.transforms[1] (RandomShift)"]
    assert 'dataset = stoker.cache(dataset, before="transform")' in str(caught.value)


RANDOM = {
    "numpy": lambda: np.random.rand(),
    "torch": lambda: torch.rand(1),
    "stoker": lambda: stoker.generator().random(),
    "the system": lambda: os.urandom(8),
    "the process": os.getpid,
    "the worker": lambda: getattr(torch.utils.data.get_worker_info(), "id", None),
}


@pytest.mark.parametrize("name", RANDOM)
def test_whatever_makes_samples_differ_is_refused(name: str) -> None:
    with pytest.raises(RandomSamples):
        stoker.cache(Rows([RANDOM[name]] * 3), "1MiB")


def test_a_draw_without_effect_is_refused() -> None:
    def sample():
        random.random()
        return 1

    with pytest.raises(RandomSamples, match="draws random numbers"):
        stoker.cache(Rows([sample] * 3), "1MiB")


def test_a_generator_of_the_dataset_is_named() -> None:
    class Noisy(Rows):
        noise: Any

        def __getitem__(self, index):
            return self.noise.standard_normal()

    rows = Noisy([1, 2])
    rows.noise = np.random.default_rng(1)
    with pytest.raises(RandomSamples) as caught:
        stoker.cache(rows, "1MiB")
    assert caught.value.draws == ["dataset.noise"]


def test_the_proof_changes_nothing_here() -> None:
    states = random.getstate(), torch.get_rng_state().tolist()
    rows = Rows([1, 2])
    stoker.cache(rows, "1MiB")
    assert (random.getstate(), torch.get_rng_state().tolist()) == states
    assert vars(rows) == {"rows": [1, 2]}


def test_a_sample_that_draws_later_is_never_kept(caplog: pytest.LogCaptureFixture) -> None:
    state: dict[str, Any] = {"make": int}
    cached = stoker.cache(Rows([1, lambda: state["make"]()]), "1MiB")
    state["make"] = random.random
    assert cached[1] != cached[1]
    assert "sample 1 drew from random" in caplog.text
    assert cached.cache_info()["entries"] == 0


def test_a_sample_that_draws_on_a_worker_thread_is_never_kept() -> None:
    state: dict[str, Any] = {"make": float}
    rows: list[Any] = [float(number) for number in range(7)]
    cached = stoker.cache(Rows([*rows, lambda: state["make"]()]), "1MiB")
    state["make"] = lambda: float(stoker.generator().random())
    with stoker.DataLoader(
        cached, batch_size=4, num_workers=2, executor="thread", persistent_workers=True
    ) as loader:
        epochs = [torch.cat(list(loader)).tolist() for _ in range(3)]
    assert len({epoch[7] for epoch in epochs}) == 3
    assert all(epoch[:7] == rows for epoch in epochs)


def test_a_function_may_have_many_small_results() -> None:
    function = stoker.cached(lambda number: np.full(100, number % 251, np.uint8), "16MiB")
    for number in range(20_000):
        function(number)
    assert function.cache_info()["entries"] > 15_000


def test_a_larger_budget_goes_on_with_the_file_of_a_function(tmp_path: Path) -> None:
    for budget in ("1MiB", "16MiB"):
        function = stoker.cached(lambda number: np.full(100, number, np.uint8), budget, path=tmp_path)
        before = counters().totals()
        for number in range(9):
            function(number)
    assert since(before) == (9, 0, 0)


def test_before_runs_the_random_part_anew() -> None:
    pictures = Pictures(Compose([Twice(), RandomShift(), Twice()]))
    cached = stoker.cache(pictures, "1MiB", before="transform")
    for _ in range(2):
        random.seed(5)
        expected = [pictures[index] for index in range(6)]
        random.seed(5)
        found = [cached[index] for index in range(6)]
        assert bits(found) == bits(expected)
    assert cached.cache_info()["entries"] == 6


def test_before_refuses_a_dataset_that_goes_on_after_its_transform() -> None:
    class Scaled(Pictures):
        def __getitem__(self, index):
            picture, label = super().__getitem__(index)
            return picture / 2, label

    with pytest.raises(CacheRefused, match=r"changes what its transform returns.*stoker\.cached"):
        stoker.cache(Scaled(Compose([RandomShift()])), "1MiB", before="transform")


def test_before_names_a_transform_that_is_called_by_keyword() -> None:
    class Keyword(Pictures):
        def __getitem__(self, index):
            return self.transform(image=index)

    with pytest.raises(CacheRefused, match=r"transform\(image=…\).*stoker\.cached"):
        stoker.cache(Keyword(lambda image: image), "1MiB", before="transform")


def test_an_exception_in_the_proof_is_quoted() -> None:
    with pytest.raises(ChildLost, match="it raised LookupError: no such row"):
        run_apart(lambda say: raising(LookupError("no such row")))


def test_no_finalizer_of_this_process_runs_in_the_proof() -> None:
    """A collection there would run those of the parent's objects: Ray's would speak on the parent's connections."""

    def ends(say: Any) -> None:
        say(gc.isenabled())

    assert run_apart(ends) == [[False]]


def test_before_names_a_missing_transform() -> None:
    with pytest.raises(CacheRefused, match=r"Rows\.transform is None"):
        stoker.cache(Rows([1]), before="transform")


def test_an_attribute_that_changes_is_another_dataset(caplog: pytest.LogCaptureFixture) -> None:
    pictures = Pictures(Compose([Twice()]))
    cached = stoker.cache(pictures, "1MiB")
    assert cached[1][0][0] == cached[1][0][0] == 2
    cached.transform = Compose([Twice(), Twice()])
    assert cached[1][0][0] == cached[1][0][0] == 4
    assert "transform.transforms of the cached dataset changed" in caplog.text
    pictures.transform.transforms.append(Twice())
    assert cached[1][0][0] == 8
    cached.transform = Compose([RandomShift()])
    with pytest.raises(RandomSamples):
        cached[1]


def test_a_file_that_changes_makes_its_sample_anew(tmp_path: Path) -> None:
    class Files(Dataset):
        def __init__(self):
            self.samples = [str(tmp_path / name) for name in "ab"]

        def __len__(self):
            return 2

        def __getitem__(self, index):
            with open(self.samples[index]) as file:
                return file.read()

    for name in "ab":
        (tmp_path / name).write_text(name)
    cached = stoker.cache(Files(), "1MiB")
    before = counters().totals()
    assert [cached[0], cached[0]] == ["a", "a"]
    (tmp_path / "a").write_text("other")
    assert [cached[0], cached[0]] == ["other", "other"]
    assert since(before) == (2, 2, 0)


def test_verify_names_a_sample_that_differs() -> None:
    state = {"value": 1}
    cached = stoker.cache(Rows([lambda: state["value"]]), "1MiB", verify=1.0)
    assert cached[0] == cached[0] == 1
    state["value"] = 5
    with pytest.raises(CacheMismatch, match="sample 0 of Rows"):
        cached[0]


class Stream(IterableDataset):
    def __iter__(self):
        return iter((1, 2))


@pytest.mark.parametrize(
    ("provoke", "says"),
    [
        (lambda: stoker.cache(Stream()), "iterable.*stoker.cached"),
        (lambda: stoker.cache(stoker.cache(Rows([1]), "1MiB")), "cached already"),
        (
            lambda: stoker.cache(Subset(stoker.cache(Rows([1, 2]), "1MiB"), [1])),
            "dataset.dataset is cached already",
        ),
        (lambda: stoker.cache(Rows([1]), "900TiB"), r"900 TiB.*above the memory.*path="),
        (lambda: stoker.cache(Rows([torch.zeros(10_000)]), "10kB"), r"below one sample of Rows.*39\.\d KiB"),
        (lambda: stoker.cache(Rows([1]), verify=2), "share from 0 to 1"),
        (lambda: stoker.cache(Rows([1]), verify=cast(Any, "1%")), "share from 0 to 1.*not '1%'"),
        (lambda: stoker.cached(len, verify=cast(Any, None)), "share from 0 to 1.*not None"),
        (lambda: stoker.cached(cast(Any, 3)), "needs a function"),
        (lambda: stoker.cached(stoker.cached(len, "1MiB")), "cached already"),
    ],
)
def test_what_cannot_be_cached_is_refused(provoke: Any, says: str) -> None:
    with pytest.raises(CacheRefused, match=says):
        provoke()


def test_what_does_not_fit_is_made_each_time() -> None:
    cached = stoker.cache(Rows([torch.full((1000,), index) for index in range(20)]), "40kB")
    before = counters().totals()
    for _ in range(2):
        assert [int(cached[index][0]) for index in range(20)] == list(range(20))
    hits, misses, passed = since(before)
    assert hits == 4
    assert misses == 36
    assert passed == 32
    assert cached.cache_info()["full"]
    assert cached.cache_info()["stored_bytes"] <= 40_000


# Functions


def double(value):
    return value * 2


def test_a_function_is_called_once_for_equal_arguments() -> None:
    calls = []

    def traced(value, *, scale=1):
        calls.append(value)
        return torch.full((3,), value * scale)

    cached = stoker.cached(traced, "1MiB")
    before = counters().totals()
    for _ in range(3):
        cached(1).add_(1)
        assert cached(1)[0] == 1
        assert cached(1, scale=2)[0] == 2
    assert since(before) == (7, 2, 0)
    assert calls == [1, 1, 1, 1], "each of the first results is made twice"


def test_a_decorated_function_and_a_method_work() -> None:
    @stoker.cached(budget="1MiB")
    def halved(value):
        return value / 2

    class Reader:
        @stoker.cached(budget="1MiB")
        def read(self, value):
            return value + 1

    assert halved(4) == halved(4) == 2
    assert halved.__name__ == "halved"
    assert Reader().read(2) == Reader().read(2) == 3


def test_a_function_that_draws_raises() -> None:
    with pytest.raises(RandomSamples, match="random"):
        stoker.cached(lambda value: random.random(), "1MiB")(1)
    with pytest.raises(RandomSamples, match="differs each time"):
        stoker.cached(lambda value: os.urandom(4), "1MiB")(1)


def test_a_file_among_the_arguments_counts(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("a")
    read = stoker.cached(Path.read_text, "1MiB")
    assert read(path) == read(path) == "a"
    path.write_text("other")
    assert read(path) == "other"


def test_an_argument_that_is_no_key_passes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "stoker")
    cached = stoker.cached(lambda rows: sum(rows), "1MiB")
    assert cached(each for each in (1, 2)) == 3
    assert "cannot be a key of the cache" in caplog.text


def test_another_thread_makes_a_sample_again_and_leaves_the_shared_generators_alone() -> None:
    """Others draw from them meanwhile: a look would blame the sample, and putting them back would repeat the others' numbers."""
    seen: list[object] = []

    def draw() -> float:
        return random.random()

    state = random.getstate()
    expected = random.Random()
    expected.setstate(state)
    thread = threading.Thread(target=lambda: seen.append(made_again(draw, ())))
    thread.start()
    thread.join()
    assert seen == [(expected.random(), [])]
    assert random.getstate() == expected.getstate()
    assert made_again(draw, ())[1] == ["random"]
    assert random.getstate() == expected.getstate()
