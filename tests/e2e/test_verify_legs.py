"""``stoker verify`` over resumed runs, and the faults of sharding, epochs and checkpoints that it names."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    Sampler,
)

import stoker
from stoker._receipt import receipt_file
from stoker._receipt.mixing import MASK
from tests.e2e.receipts import Numbers, Stream, codes, found, loader_of, ranked, run, text_of


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
