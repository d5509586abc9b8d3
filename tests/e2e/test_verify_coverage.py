"""``stoker verify`` says whether ranks covered every sample once, and names what was left out or repeated."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    Sampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

import stoker
from stoker.cli.main import main
from tests.e2e.receipts import DATA, Numbers, codes, found, loader_of, ranked, run, text_of


def test_one_rank_covers_every_sample_once(tmp_path):
    run(tmp_path / "a", loader_of())
    assert text_of(found(tmp_path / "a"), "complete") == "every one of the 100 samples exactly once"


def test_two_ranks_cover_every_sample_once(tmp_path):
    ranked(tmp_path, epochs=3)
    answers = found(tmp_path)
    assert codes(answers) == ["complete"]
    assert text_of(answers, "complete") == "every one of the 100 samples exactly once over 2 ranks"


def test_padding_is_named(tmp_path):
    ranked(tmp_path, world=3, length=100)
    order: Any = list(DistributedSampler(Numbers(100), num_replicas=3, rank=0))[:1]
    order += list(DistributedSampler(Numbers(100), num_replicas=3, rank=1))[:1]
    names = ", ".join(map(str, sorted(order)))
    answers = found(tmp_path)
    assert codes(answers) == ["padded"]
    assert f"2 samples ({names}) came again" in text_of(answers, "padded")


def test_what_drop_last_left_out_is_named(tmp_path):
    run(tmp_path / "a", loader_of(shuffle=False, drop_last=True))
    assert "drop_last left out 4 samples (96–99)" in text_of(found(tmp_path / "a"), "dropped")


def test_a_rank_that_is_not_here_is_named(tmp_path):
    ranked(tmp_path)
    assert "rank 1" in text_of(found(tmp_path / "rank0.receipt"), "ranks-missing")


def test_ranks_that_do_not_divide_the_data_are_named(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in "01":
        monkeypatch.setenv("RANK", rank)
        run(tmp_path / f"{rank}.receipt", loader_of())
    assert "ranks 0, 1 handed over the same 100 samples" in text_of(found(tmp_path), "not-divided")


def test_a_sampler_that_loses_and_repeats_samples(tmp_path):
    order = [*range(98), 3, 3]
    run(tmp_path / "a", loader_of(shuffle=False, sampler=order))
    text = text_of(found(tmp_path / "a"), "wrong-samples")
    assert "1 sample (3) came more than once" in text
    assert "2 samples (98, 99) were never handed over" in text


def test_samplers_that_cover_no_dataset_are_not_blamed(tmp_path):
    weighted = WeightedRandomSampler([1.0] * 100, 100)
    for place, sampler in enumerate([weighted, SubsetRandomSampler(range(50))]):
        run(tmp_path / f"{place}", loader_of(shuffle=False, sampler=sampler))
    assert codes(found(tmp_path / "0")) == ["replacement"]
    assert text_of(found(tmp_path / "1"), "subset") == (
        "50 samples, as many as SubsetRandomSampler names, out of 100, each of them once"
    )


class Part(Sampler[int]):
    """Names a part of the dataset."""

    def __init__(self, indices: list[int]) -> None:
        self.indices = indices

    def __len__(self) -> int:
        return len(self.indices)

    def __iter__(self) -> Iterator[int]:
        return iter(self.indices)


@pytest.mark.parametrize(
    ("length", "indices", "text"),
    [
        (
            103,
            [i for i in range(103) if i not in (7, 50)] + [3],
            "1 sample (3) came more than once, and 2 samples (7, 50) never",
        ),
        (100_000, [*range(30), 8], "1 sample (8) came more than once"),
    ],
)
def test_a_repetition_within_a_part_is_found(tmp_path, length, indices, text):
    run(tmp_path / "a", loader_of(Numbers(length), shuffle=False, sampler=Part(indices)))
    answers = found(tmp_path / "a")
    assert codes(answers) == ["wrong-samples"]
    assert text_of(answers, "wrong-samples") == (
        f"{len(indices)} samples, as many as Part names, out of {length}, but {text}"
    )


def test_a_part_too_large_to_tell_repetitions_is_not_called_right(tmp_path):
    run(
        tmp_path / "a",
        loader_of(Numbers(20_000), shuffle=False, batch_size=500, sampler=Part([*range(5000)])),
    )
    answers = found(tmp_path / "a")
    assert "5000 samples, as many as Part names, out of 20000: whether all are different" in text_of(
        answers, "part-unknown"
    )
    shown = CliRunner().invoke(main, ["verify", str(tmp_path / "a")])
    assert shown.exit_code == 0
    assert "Nothing is wrong" not in shown.output
    assert "Nothing wrong was found in 1 receipt of 1 loader, but not all can be known." in shown.output


def test_batch_samplers_and_whole_batches_of_the_dataset_count_their_indices(tmp_path):
    batches = BatchSampler(range(100), 8, False)
    run(tmp_path / "a", stoker.DataLoader(DATA, batch_sampler=batches))
    run(tmp_path / "b", stoker.DataLoader(DATA, sampler=batches, batch_size=None))
    run(tmp_path / "c", stoker.DataLoader(DATA, batch_size=None))
    for name in "abc":
        assert codes(found(tmp_path / name)) == ["complete"]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("mode", ["skip", "replace"])
def test_bad_samples_show(tmp_path, mode, workers):
    run(tmp_path / "a", loader_of(Numbers(100, (7, 33)), on_bad_sample=mode, num_workers=workers))
    run(tmp_path / "b", loader_of(Numbers(100)))
    answers = found(tmp_path / "a")
    assert codes(answers, "fault") == []
    text = text_of(answers, "bad-samples")
    assert "2 bad samples" in text
    assert "33" in text
    assert ("others stand in" in text) == (mode == "replace")
    assert "different" in codes(found(tmp_path / "a", tmp_path / "b"))


def test_a_batch_that_raised_shows(tmp_path):
    loader = loader_of(Numbers(100, (7,)), shuffle=False)
    iterator = iter(loader)
    with pytest.raises(ValueError, match="bad"):
        next(iterator)
    assert sum(1 for _ in iterator) == 12
    loader.receipt().save(tmp_path / "a")
    answers = found(tmp_path / "a")
    assert "1 batch raised an error and handed over nothing: 0" in text_of(answers, "failed-batches")
    assert "8 samples (0–7) were never handed over" in text_of(answers, "wrong-samples")
