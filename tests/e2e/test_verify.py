"""``stoker verify`` over receipts of real loaders: equal and different runs, two ranks, resumed runs, and each fault it names."""

from __future__ import annotations

import itertools
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from torch.utils.data import (
    BatchSampler,
    Dataset,
    DistributedSampler,
    IterableDataset,
    Sampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

import stoker
from stoker._receipt import receipt_file
from stoker._receipt.mixing import MASK
from stoker._tools.verify.verification import Verification, verify
from stoker.cli.main import main

DATA: Any = TensorDataset(torch.arange(100))


class Numbers(Dataset[int]):
    """A dataset in which some samples raise."""

    def __init__(self, length: int, bad: tuple[int, ...] = ()) -> None:
        self.length, self.bad = length, bad

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        if index in self.bad:
            raise ValueError("bad")
        return index


def loader_of(dataset: Any = DATA, seed: int = 0, **arguments: Any) -> Any:
    generator = torch.Generator().manual_seed(seed)
    given: dict[str, Any] = {"batch_size": 8, "shuffle": True, "generator": generator, **arguments}
    return stoker.DataLoader(dataset, **given)


def run(path: Path, loader: Any, epochs: int = 1, leave_after: int | None = None) -> Any:
    """Iterate a loader and save its receipts; returns its state where it was left."""
    state = None
    for _ in range(epochs):
        iterator = iter(loader)
        for _ in itertools.islice(iterator, leave_after):
            pass
        if leave_after is not None:
            state = loader.state_dict()
        loader.receipt().save(path)
        del iterator
    loader.close()
    return state


def found(*paths: Path) -> Verification:
    return verify(paths)


def codes(answers: Verification, level: str | None = None) -> list[str]:
    return [each.code for each in answers.answers if level in (None, each.level)]


def text_of(answers: Verification, code: str) -> str:
    [answer] = [each for each in answers.answers if each.code == code]
    return answer.text


# Two runs


@pytest.mark.parametrize(
    "other",
    [
        {},
        {"num_workers": 2},
        {"num_workers": 2, "executor": "thread"},
        {"num_workers": 2, "persistent_workers": True, "prefetch_epochs": True},
        {"num_workers": 2, "split_batches": True},
        {"on_bad_sample": "skip"},
        {"timeout": 60},
    ],
    ids=str,
)
def test_runs_with_the_same_seed_are_the_same_whoever_makes_the_batches(tmp_path, other):
    a, b = tmp_path / "a", tmp_path / "b"
    run(a, loader_of(), epochs=2)
    run(b, loader_of(**other), epochs=2)
    answers = found(a, b)
    assert codes(answers, "fault") == []
    assert "the two runs are the same: 13 batches, and the seed" in text_of(answers, "same")
    assert [each.epochs for each in answers.answers if each.code == "same"] == [(0, 1)]


def test_another_seed_differs_from_the_first_batch_on(tmp_path):
    a, b = tmp_path / "a", tmp_path / "b"
    run(a, loader_of(seed=0))
    run(b, loader_of(seed=1))
    text = text_of(found(a, b), "different")
    assert text == (
        "the two runs are different from batch 0 on, which is the first one: the same samples in another order"
    )


def test_the_first_batch_that_differs_is_named(tmp_path):
    a, b = tmp_path / "a", tmp_path / "b"
    order: Any = list(range(100))
    run(a, loader_of(shuffle=False, sampler=order))
    order[61], order[62] = order[62], order[61]
    run(b, loader_of(shuffle=False, sampler=order))
    assert text_of(found(a, b), "different") == "the two runs are different from batch 7 on"


def test_the_same_order_with_another_seed_is_told(tmp_path):
    a, b = tmp_path / "a", tmp_path / "b"
    run(a, loader_of(shuffle=False, seed=0))
    run(b, loader_of(shuffle=False, seed=1))
    assert "other random numbers" in text_of(found(a, b), "different-seed")


def test_batches_out_of_order_are_the_same_batches(tmp_path):
    a, b = tmp_path / "a", tmp_path / "b"
    run(a, loader_of())
    run(b, loader_of(num_workers=2, in_order=False))
    answers = found(a, b)
    assert codes(answers, "fault") == []
    assert {"same", "other-order"} & set(codes(answers))


def test_a_run_that_was_left_is_the_same_up_to_there(tmp_path):
    a, b = tmp_path / "a", tmp_path / "b"
    run(a, loader_of())
    run(b, loader_of(), leave_after=5)
    answers = found(a, b)
    assert "the same up to batch 4" in text_of(answers, "different-length")
    assert codes(answers, "fault") == []


def test_another_dataset_is_named(tmp_path):
    a, b = tmp_path / "a", tmp_path / "b"
    run(a, loader_of())
    run(b, loader_of(Numbers(99)))
    assert text_of(found(a, b), "another-dataset") == (
        "the receipts are of different datasets: TensorDataset of 100 samples, and Numbers of 99 samples in run 2"
    )


# Coverage


def ranked(
    path: Path, world: int = 2, length: int = 100, epochs: int = 1, set_epoch: bool = True, **given: Any
) -> None:
    dataset = Numbers(length)
    for rank in range(world):
        sampler: Any = DistributedSampler(dataset, num_replicas=world, rank=rank, **given)
        loader = loader_of(dataset, shuffle=False, sampler=sampler)
        for epoch in range(epochs):
            if set_epoch:
                sampler.set_epoch(epoch)
            for _ in loader:
                pass
            loader.receipt().save(path / f"rank{rank}.receipt")


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
    assert codes(found(tmp_path / "1")) == ["subset"]


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


# The three faults


class Share(Sampler[list[int]]):
    """Divides the batches of another sampler, as Accelerate's BatchSamplerShard does."""

    def __init__(self, batch_sampler: Any, num_processes: int, process_index: int) -> None:
        self.batch_sampler, self.num_processes, self.process_index = (
            batch_sampler,
            num_processes,
            process_index,
        )

    def __iter__(self) -> Iterator[list[int]]:
        return itertools.islice(iter(self.batch_sampler), self.process_index, None, self.num_processes)


def test_double_sharding_is_named(tmp_path):
    dataset = Numbers(128)
    for rank in range(2):
        sampler: Any = DistributedSampler(dataset, num_replicas=2, rank=rank)
        share = Share(BatchSampler(sampler, 4, False), 2, rank)
        run(tmp_path / f"{rank}.receipt", stoker.DataLoader(dataset, batch_sampler=share))
    for path in (tmp_path, tmp_path / "0.receipt"):
        text = text_of(found(path), "double-sharding")
        assert "divided by 2 ranks twice (Share by 2 and DistributedSampler by 2)" in text
        assert "each handed over 32 samples, not 64 of 128" in text


def test_a_stale_set_epoch_is_named(tmp_path):
    ranked(tmp_path / "..", epochs=1)
    ranked(tmp_path, epochs=3, set_epoch=False)
    answers = found(tmp_path)
    assert "stale set_epoch: the same batches in the same order as in epoch 0" in text_of(
        answers, "stale-set-epoch"
    )
    assert [each.epochs for each in answers.answers if each.code == "stale-set-epoch"] == [(1, 2)]


def test_an_order_that_is_meant_to_stay_is_no_fault(tmp_path):
    ranked(tmp_path, epochs=2, set_epoch=False, shuffle=False)
    assert codes(found(tmp_path)) == ["complete"]


def test_a_generator_that_is_seeded_anew_is_named(tmp_path):
    loader = loader_of()
    for _ in range(2):
        loader.generator.manual_seed(0)
        for _ in loader:
            pass
        loader.receipt().save(tmp_path / "a")
    assert "same-order" in codes(found(tmp_path / "a"), "fault")


class Forgetful(Sampler[int]):
    """Goes on where its state says. From the second resume on, its state is that of the resume before."""

    def __init__(self) -> None:
        self.at = self.loaded = 0
        self.resumes = 0

    def __len__(self) -> int:
        return 96

    def __iter__(self) -> Iterator[int]:
        for index in range(self.at, 96):
            self.at = index + 1
            yield index
        self.at = 0

    def state_dict(self) -> dict[str, int]:
        at = self.loaded if self.resumes else self.at
        return {"at": at, "resumes": self.resumes}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = self.loaded = state["at"]
        self.resumes = state["resumes"] + 1


def test_data_that_is_repeated_after_the_second_resume_is_named(tmp_path):
    state = None
    for _ in range(3):
        loader = loader_of(Numbers(96), shuffle=False, sampler=Forgetful())
        if state is not None:
            loader.load_state_dict(state)
        state = run(tmp_path / "a", loader, leave_after=4)
    text = text_of(found(tmp_path / "a"), "repeated")
    assert text.startswith(
        "repeated data: leg 3 handed over batches 4 to 7 of leg 2 again, as its batches 8 to 11. The sampler or dataset"
    )


class Stream(IterableDataset[int]):
    """A stream whose state is stale after a resume, as that of datasets 5.0 (torchtitan #3907)."""

    def __init__(self) -> None:
        self.start = self.at = 0
        self.stale = False

    def __iter__(self) -> Iterator[int]:
        for number in range(self.start, 96):
            self.at = number + 1
            yield number

    def state_dict(self) -> dict[str, Any]:
        return {"at": 0 if self.stale else self.at, "stale": self.stale}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.start = self.at = state["at"]
        self.stale = True


def test_a_stream_that_begins_anew_after_the_second_resume_is_named(tmp_path):
    state = None
    for _ in range(3):
        loader = loader_of(Stream(), shuffle=None)
        if state is not None:
            loader.load_state_dict(state)
        state = run(tmp_path / "a", loader, leave_after=4)
    text = text_of(found(tmp_path / "a"), "repeated")
    assert text.startswith(
        "repeated data: leg 3 handed over batches 0 to 3 of leg 1 again, as its batches 8 to 11."
    )


def test_a_stale_checkpoint_that_is_loaded_twice_is_named(tmp_path):
    state = run(tmp_path / "a", loader_of(), leave_after=4)
    for _ in range(2):
        loader = loader_of()
        loader.load_state_dict(state)
        run(tmp_path / "a", loader, leave_after=4)
    text = text_of(found(tmp_path / "a"), "repeated")
    assert "batches 4 to 7 came in leg 2 and again in leg 3" in text


# Legs


@pytest.mark.parametrize("workers", [0, 2])
def test_legs_add_up_to_an_epoch(tmp_path, workers):
    a, b = tmp_path / "a", tmp_path / "b"
    run(a, loader_of(num_workers=workers), epochs=2)
    state = run(b, loader_of(), leave_after=4)
    for leave in (5, None):
        loader = loader_of(num_workers=workers)
        loader.load_state_dict(json.loads(json.dumps(state)))
        state = run(b, loader, leave_after=leave)
    answers = found(b)
    assert codes(answers) == ["complete", "adds-up"]
    assert text_of(answers, "adds-up") == "3 legs (batches 0–3, 4–8, 9–12) add up to an epoch of 13 batches"
    assert "the two runs are the same: 13 batches" in text_of(found(a, b), "same")


def test_batches_after_the_last_state_come_again_and_that_is_no_fault(tmp_path):
    loader = loader_of()
    iterator = iter(loader)
    list(itertools.islice(iterator, 4))
    state = loader.state_dict()
    list(itertools.islice(iterator, 2))
    loader.receipt().save(tmp_path / "a")
    other = loader_of()
    other.load_state_dict(state)
    run(tmp_path / "b", other)
    answers = found(tmp_path / "a", tmp_path / "b")
    assert codes(answers, "fault") == []
    assert "2 batches after the last saved state came again" in text_of(answers, "taken-again")
    assert codes(answers, "ok") == ["complete", "adds-up"]


def test_legs_between_two_epochs_are_one_run(tmp_path):
    loader = loader_of()
    for _ in loader:
        pass
    loader.receipt().save(tmp_path / "a")
    other = loader_of(seed=9)
    other.load_state_dict(loader.state_dict())
    run(tmp_path / "b", other)
    answers = found(tmp_path / "a", tmp_path / "b")
    assert codes(answers) == ["complete"]
    assert answers.answers[0].epochs == (0, 1)


def test_a_leg_whose_beginning_is_not_here(tmp_path):
    state = run(tmp_path / "a", loader_of(), leave_after=4)
    loader = loader_of()
    loader.load_state_dict(state)
    run(tmp_path / "b", loader)
    answers = found(tmp_path / "b")
    assert "batches 0 to 3 are not here" in text_of(answers, "leg-missing")
    assert codes(answers, "ok") == ["complete"]


def test_an_elastic_run_on_another_number_of_ranks_covers_every_sample(tmp_path):
    dataset = Numbers(96)
    state = None
    for world, leave in ((2, 3), (3, None)):
        states = []
        for rank in range(world):
            sampler = stoker.ElasticDistributedSampler(dataset, num_replicas=world, rank=rank)
            loader = stoker.DataLoader(dataset, batch_size=8, sampler=sampler, rng="sample")
            if state is not None:
                loader.load_state_dict(state)
            states.append(run(tmp_path / f"{world}-{rank}.receipt", loader, leave_after=leave))
        state = states[0]
    receipts = [receipt for path in tmp_path.iterdir() for receipt in receipt_file.read(path).receipts]
    whole = stoker.DataLoader(dataset, batch_size=8)
    for _ in whole:
        pass
    wanted = whole.receipt()
    assert wanted is not None
    assert sum(each.samples_digest for each in receipts) & MASK == wanted.samples_digest


def test_an_earlier_state_has_no_receipt_and_goes_on(tmp_path):
    state = run(tmp_path / "a", loader_of(), leave_after=4)
    for receipt in (None, ("2 from the future",)):
        old = dict(state)
        del old["receipt"]
        loader = loader_of()
        loader.load_state_dict(old if receipt is None else old | {"receipt": receipt})
        assert sum(1 for _ in loader) == 9
        assert loader.receipt().before is None


# Files and the command


def test_records_have_their_receipts_beside_them(tmp_path):
    for place in range(2):
        run(tmp_path / "saved", loader_of(record=tmp_path / str(place)))
    [journal] = (tmp_path / "0").glob("*.jsonl")
    receipts = journal.with_suffix(".receipt")
    assert stat.S_IMODE(os.stat(receipts).st_mode) == 0o600
    assert codes(found(tmp_path / "0")) == ["complete"]
    assert "same" in codes(found(journal, tmp_path / "1"))
    [receipt] = receipt_file.read(receipts).receipts
    [told] = json.loads(journal.read_text().splitlines()[-1])["loaders"][0]["receipts"]
    assert told["digest"] == f"{receipt.digest:016x}"
    assert told["samples"] == 100
    receipts.unlink()
    with pytest.raises(
        ValueError, match=r"is a run record, and .*receipt, which has its receipts, is not beside it"
    ):
        found(journal)


def test_a_saved_receipt_that_is_saved_again_counts_once(tmp_path):
    loader = loader_of()
    for _ in loader:
        loader.receipt().save(tmp_path / "a")
    loader.receipt().save(tmp_path / "a")
    [receipt] = receipt_file.read(tmp_path / "a").receipts
    mine = loader.receipt()
    assert receipt.entries.tolist() == mine.entries.tolist()
    assert receipt.as_dict() == mine.as_dict()
    assert stat.S_IMODE(os.stat(tmp_path / "a").st_mode) == 0o600


def test_a_truncated_receipt_is_named_and_read_as_far_as_it_goes(tmp_path):
    run(tmp_path / "a", loader_of(), epochs=2)
    data = (tmp_path / "a").read_bytes()
    (tmp_path / "cut").write_bytes(data[:-10])
    answers = found(tmp_path / "cut")
    assert "cut is truncated: its last block should have" in text_of(answers, "damaged")
    assert "complete" in codes(answers)
    (tmp_path / "short").write_bytes(data[:30])
    with pytest.raises(ValueError, match=r"truncated.*nothing of it can be read"):
        found(tmp_path / "short")
    (tmp_path / "flipped").write_bytes(data[:-10] + b"?" + data[-9:])
    assert "is not what was written" in text_of(found(tmp_path / "flipped"), "damaged")


def test_a_newer_receipt_is_named(tmp_path):
    run(tmp_path / "a", loader_of())
    data = bytearray((tmp_path / "a").read_bytes())
    data[4] = 9
    (tmp_path / "a").write_bytes(data)
    answer = CliRunner().invoke(main, ["verify", str(tmp_path / "a")])
    assert answer.exit_code == 2
    assert "has receipts of version 9, and this stoker reads up to 1: upgrade stoker" in answer.output


@pytest.mark.parametrize("content", [b"", b"STKR", b"{}", b"\x80\x04K\x01."])
def test_other_files_are_refused_in_a_line(tmp_path, content):
    (tmp_path / "a").write_bytes(content)
    answer = CliRunner().invoke(main, ["verify", str(tmp_path / "a")])
    assert answer.exit_code == 2
    assert answer.output.startswith("stoker verify: ")
    assert len(answer.output.splitlines()) == 1


def test_the_command_answers_with_its_exit_code_and_fits_a_terminal(tmp_path):
    run(tmp_path / "a", loader_of(), epochs=2)
    run(tmp_path / "b", loader_of(seed=1), epochs=2)
    good = CliRunner().invoke(main, ["verify", str(tmp_path / "a")])
    assert good.exit_code == 0
    assert "epochs 0, 1: every one of the 100 samples exactly once" in good.output
    assert "Nothing is wrong in 2 receipts of 1 loader." in good.output
    wrong = CliRunner().invoke(main, ["verify", str(tmp_path / "a"), str(tmp_path / "b")])
    assert wrong.exit_code == 1
    assert max(map(len, wrong.output.splitlines())) <= 100
    assert len(wrong.output.splitlines()) <= 24
    told = json.loads(
        CliRunner().invoke(main, ["verify", "--json", str(tmp_path / "a"), str(tmp_path / "b")]).output
    )
    assert told["format"] == "stoker-verify"
    assert told["faults"] == sum(each["level"] == "fault" for each in told["answers"]) == 1
    assert CliRunner().invoke(main, ["verify", str(tmp_path / "none")]).exit_code == 2


def test_a_stream_is_counted_and_that_is_said(tmp_path):
    run(tmp_path / "a", loader_of(Stream(), shuffle=None))
    run(tmp_path / "b", loader_of(Stream(), shuffle=None))
    assert "an iterable dataset has no indices: 12 batches were counted" in text_of(
        found(tmp_path / "a"), "stream"
    )
    text = [each.text for each in found(tmp_path / "a", tmp_path / "b").answers if each.question == "runs"]
    assert text == [
        "an iterable dataset has no indices: 12 batches in both runs, and the first 8 of them have the same content"
    ]


def test_before_the_first_batch_there_is_no_receipt():
    assert loader_of().receipt() is None
