"""Probes of order and randomness on small datasets: what real forks, seeded as torch seeds its workers, tell about them."""

from __future__ import annotations

import itertools
import os
import random
import signal
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.distributed import get_rank, get_world_size, is_initialized
from torch.utils.data import (
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    get_worker_info,
)
from torch.utils.data.datapipes.iter import IterableWrapper

from stoker._tools.doctor.checks.order import stk501_repeated_randomness, stk503_drop_last_loss
from stoker._tools.doctor.facts import Missing
from stoker._tools.doctor.facts.randomness import RandomnessFacts
from stoker._tools.doctor.facts.sampler import SamplerFacts as Sampled
from stoker._tools.doctor.facts.stream import StreamFacts, StreamReading
from stoker._tools.doctor.instruments import trial
from stoker._tools.doctor.instruments.fork_workers import Enough, answers, become_worker, soft_limit
from stoker._tools.doctor.probes import pinning, randomness, sampler, stream
from stoker._tools.probes.digest import digest
from stoker._tools.probes.random_source import RandomSource
from stoker._tools.sandbox.child import NoAnswer
from stoker._tools.sandbox.subject import Subject
from tests.unit.doctor.test_checks_order import LOADER, TARGET

LOOSE = np.random.default_rng(1)


@pytest.fixture(autouse=True)
def _time_enough(monkeypatch):
    """On a busy machine too; streams without end are cut by their number of items."""
    for probe in (stream, sampler):
        monkeypatch.setattr(probe, "_SOFT_S", 20.0)
        monkeypatch.setattr(probe, "_HARD_S", 60.0)
    monkeypatch.setattr(stream, "_MOST_ITEMS", 500)
    monkeypatch.setattr(randomness, "_LIMIT_S", 60.0)


class Made(Dataset):
    """``make(self, index)`` makes its samples."""

    def __init__(self, make):
        self.make = make
        self.rng = np.random.default_rng(0)
        self.seen = 0

    def __len__(self):
        return 10

    def __getitem__(self, index):
        return self.make(self, index)


class Items(IterableDataset):
    """``make()`` makes an iterator."""

    def __init__(self, make):
        self.make = make

    def __iter__(self):
        return self.make()


class Counted(Items):
    def __len__(self):
        return 90


def _judged(make, **arguments):
    found = randomness.probe(Subject(Made(make), arguments=arguments))
    assert isinstance(found, RandomnessFacts), found
    return found


def _read(make, workers=2, kind=Items):
    found = stream.probe(Subject(kind(make), arguments={"num_workers": workers}))
    assert isinstance(found, StreamFacts), found
    return found


def test_the_imitated_worker_draws_what_torchs_own_draws():
    def draw():
        return [float(torch.rand(())), float(np.random.rand()), random.random()]

    class Drawn(Dataset):
        def __len__(self):
            return 2

        def __getitem__(self, index):
            return draw()

    def imitated(worker):
        become_worker(None, worker, 2, base_seed, None)
        return draw()

    generator = torch.Generator().manual_seed(3)
    base_seed = int(torch.empty((), dtype=torch.int64).random_(generator=generator))
    generator.manual_seed(3)
    loader = DataLoader(
        Drawn(), batch_size=None, num_workers=2, generator=generator, multiprocessing_context="fork"
    )
    torchs = [[float(each) for each in sample] for sample in loader]
    assert answers([lambda: imitated(0), lambda: imitated(1)], 10.0) == torchs


def test_generators_that_are_copied_repeat_and_are_named():
    stored = _judged(lambda self, index: self.rng.random())
    assert stored.verdict == "repeated"
    assert stored.workers_equal
    assert stored.epochs_equal
    assert stored.sources == (RandomSource("dataset.rng", "numpy.Generator", "stored"),)
    persistent = _judged(lambda self, index: self.rng.random(), persistent_workers=True)
    assert (persistent.workers_equal, persistent.epochs_equal) == (True, False)
    loose = _judged(lambda self, index: LOOSE.random())
    assert loose.verdict == "repeated"
    assert [(each.name.rpartition(".")[2], each.reach) for each in loose.sources] == [("LOOSE", "module")]
    by_worker = _judged(
        lambda self, index: np.random.rand(), worker_init_fn=lambda worker: np.random.seed(worker)
    )
    assert (by_worker.verdict, by_worker.workers_equal, by_worker.own_init) == ("repeated", False, True)


def test_the_statements_that_are_advised_heal_it():
    def draw(self, index):
        return (
            self.rng.random(),
            self.old.rand(),
            self.python.random(),
            torch.rand(2, generator=self.torchs[0]),
        )

    dataset = Made(draw)
    held = {
        "old": np.random.RandomState(1),
        "python": random.Random(1),
        "torchs": [torch.Generator().manual_seed(1)],
    }
    vars(dataset).update(held)
    sick = randomness.probe(Subject(dataset))
    assert isinstance(sick, RandomnessFacts)
    assert len(sick.sources) == 4
    (found,) = stk501_repeated_randomness.examine(sick, TARGET)
    assert found.edit is not None
    statements = found.edit.after

    def seed_worker(worker):
        exec(statements, {"torch": torch})

    healed = randomness.probe(Subject(dataset, arguments={"worker_init_fn": seed_worker}))
    assert isinstance(healed, RandomnessFacts)
    assert healed.verdict == "healthy"


def test_randomness_that_is_sound_constant_or_beyond_seeds():
    sound = _judged(lambda self, index: (torch.rand(2), index))
    assert sound.verdict == "healthy"
    assert [each.name for each in sound.sources] == ["torch"]
    assert _judged(lambda self, index: index).verdict == "deterministic"
    assert _judged(lambda self, index: os.urandom(8)).verdict == "unseeded"

    def refuse(self, index):
        raise OSError("no such picture")

    class Keyed(Dataset):
        def __getitem__(self, key):
            return {"cat": 1, "dog": 2}[key]

    keyed = randomness.probe(Subject(Keyed(), arguments={"sampler": ["cat", "dog"], "batch_size": 1}))
    assert isinstance(keyed, RandomnessFacts)
    assert (keyed.indices, keyed.verdict) == (("cat", "dog"), "deterministic")
    refused = randomness.probe(Subject(Made(refuse)))
    assert isinstance(refused, Missing)
    assert "sample 0: OSError: no such picture" in refused.reason


def _shared_out(count=103):
    info = get_worker_info()
    return iter(range(count)) if info is None else iter(range(info.id, count, info.num_workers))


def test_streams_that_end_are_counted_to_the_last_item():
    shared_out = _read(_shared_out, kind=Counted)
    assert shared_out.workers == (StreamReading(52, True), StreamReading(51, True))
    assert (shared_out.alone.items, shared_out.repeated, shared_out.declared) == (103, 0, 90)
    whole = _read(lambda: iter(range(50)), workers=3)
    assert whole.whole
    assert (whole.items, whole.repeated, whole.example) == (150, 100, (0, 0, 1, 0))
    target = replace(TARGET, stream=True, loader=replace(LOADER, batch_size=8, drop_last=True))
    (lost,) = stk503_drop_last_loss.examine(target, shared_out)
    torchs = DataLoader(Items(_shared_out), 8, num_workers=2, drop_last=True, multiprocessing_context="fork")
    assert lost.numbers["batches"] == len(list(torchs))
    pipe = stream.probe(Subject(IterableWrapper(range(60)).shuffle().sharding_filter()))
    assert isinstance(pipe, StreamFacts)
    assert (pipe.items, pipe.repeated) == (60, 0)
    augmented = _read(lambda: iter([torch.rand(2) for _ in range(20)]))
    assert augmented.whole
    assert augmented.repeated == 0


def test_streams_without_end_and_streams_that_break():
    same = _read(lambda: itertools.cycle(range(5)))
    assert same.alike
    assert not same.ended
    assert not _read(lambda: itertools.repeat(0)).alike

    def broken():
        yield 1
        yield 2
        raise ValueError("bad record")

    dead = _read(broken).broken
    assert dead is not None
    assert (dead.item, dead.kind, dead.after) == (2, "ValueError", "ended")
    unreadable = stream.probe(Subject(Made(None)))
    assert isinstance(unreadable, Missing)


class ByRank(IterableDataset):
    def __iter__(self):
        rank, world = (get_rank(), get_world_size()) if is_initialized() else (0, 1)
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        return iter(range(rank * workers + worker, 103, world * workers))


def test_ranks_are_tried_where_the_dataset_asks_for_its_rank(monkeypatch):
    found = stream.probe(Subject(ByRank(), arguments={"num_workers": 2}))
    assert isinstance(found, StreamFacts)
    assert (found.world, found.ranks) == (2, ((0, (26, 26)), (1, (26, 25))))
    assert (found.ranks_alike, found.world_known) == (False, False)
    monkeypatch.setenv("WORLD_SIZE", "4")
    blind = _read(_shared_out)
    assert (blind.world, blind.ranks_alike, blind.world_known) == (4, True, True)
    assert not _read(lambda: iter([torch.rand(2) for _ in range(20)])).ranks_alike
    assert not torch.distributed.is_initialized()


class Share(Sampler):
    """Every ``num_replicas``-th index, and nothing to make up for the remainder."""

    def __init__(self, rank, num_replicas):
        self.rank, self.num_replicas = rank, num_replicas

    def __iter__(self):
        return iter(range(self.rank, 10, self.num_replicas))

    def __len__(self):
        return len(range(self.rank, 10, self.num_replicas))


def test_samplers_are_looked_at():
    dataset = Made(lambda self, index: "abcdefghij"[index])

    def look(own):
        return sampler.probe(Subject(dataset, arguments={"sampler": own, "batch_size": 1}))

    outside = look(SubsetRandomSampler([3, 40, 41]))
    assert (outside.outsiders, outside.length) == (2, 10)
    assert outside.outside.index in (40, 41)
    assert outside.outside.error == "IndexError: string index out of range"
    assert look(iter([1, 2])).one_shot
    shares = look(Share(0, 3))
    assert (shares.world, shares.ranks) == (3, ((0, 4), (2, 3)))
    plain = look(DistributedSampler(dataset, 2, 0))
    assert (plain.seen, plain.repeats, plain.ranks) == (0, True, ())
    assert not look(DistributedSampler(dataset, 2, 0, shuffle=False)).repeats
    assert isinstance(sampler.probe(Subject(dataset)), Missing)
    assert sampler.probe(Subject([])) == Sampled("SequentialSampler", 0, 0, empty=True)
    of_nothing = {"sampler": SequentialSampler([])}
    assert isinstance(
        told := sampler.probe(Subject(of_nothing["sampler"].data_source, arguments=of_nothing)), Sampled
    )
    assert told.empty
    unknown = NoLength()
    for arguments in ({}, {"sampler": SequentialSampler(unknown)}):
        assert isinstance(told := sampler.probe(Subject(unknown, arguments=arguments)), Sampled)
        assert told.error == "len(dataset): OSError: no index"


class NoLength(list[int]):
    def __len__(self):
        raise OSError("no index")


def test_a_worker_on_trial_answers_though_its_child_holds_the_pipe():
    ours, theirs = os.pipe()

    def starts_a_process():
        if os.fork() == 0:
            os.close(theirs)
            os.read(ours, 1)
            os._exit(0)
        return 7

    try:
        assert trial.in_worker(Subject([1, 2, 3]), starts_a_process) == 7
        with pytest.raises(trial.TrialFailed, match="ended with code 0"):
            trial.in_worker(Subject([1, 2, 3]), lambda: starts_a_process() and os._exit(0))
    finally:
        os.close(ours)
        os.close(theirs)


def test_forks_that_hang_die_or_are_enough():
    def hang():
        signal.pause()

    def die():
        os.kill(os.getpid(), signal.SIGKILL)

    def interrupted():
        try:
            with soft_limit(0.05):
                time.sleep(60)
        except Enough:
            return "enough"

    died, told = answers([die, interrupted], 60.0)
    (hung,) = answers([hang], 0.1)
    assert isinstance(hung, NoAnswer)
    assert "no answer within" in hung.reason
    assert died == NoAnswer("its process died")
    assert told == "enough"


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ({"a": torch.arange(4)}, {"a": torch.arange(4)}, True),
        (torch.arange(4), torch.arange(4).float(), False),
        (torch.zeros(2, 3), torch.zeros(3, 2), False),
        (np.arange(6).reshape(2, 3).T, np.arange(6).reshape(2, 3).T.copy(), True),
        ([1, (2, 3)], [1, [2, 3]], False),
        (np.zeros(0), np.zeros(0), True),
        (torch.tensor(float("nan")), torch.tensor(float("nan")), True),
        (np.array(["a", None]), np.array(["a", None]), True),
        (torch.eye(2).to_sparse(), torch.eye(2).to_sparse(), True),
        (Items(torch.arange(4)), Items(torch.arange(4)), True),
        (Items(torch.arange(4)), Items(torch.arange(1, 5)), False),
    ],
)
def test_digests_go_by_content(one, other, equal):
    assert (digest(one) == digest(other)) is equal


def test_what_a_thread_copies_is_measured():
    found = pinning.probe(Subject(None))
    assert found.copy_bytes_s > 0
    assert (found.accelerator is None) == (found.devices == 0)


def test_a_cache_of_random_samples_is_told_from_fresh_and_from_constant_ones():
    kept = {}

    def cached(dataset, index):
        if index not in kept:
            kept[index] = np.random.rand(3)
        return kept[index]

    frozen = _judged(cached)
    assert frozen.frozen == frozen.indices
    assert [each.name for each in frozen.sources] == ["numpy.random"]
    assert _judged(lambda dataset, index: np.random.rand(3)).frozen == ()
    assert _judged(lambda dataset, index: np.full(3, index)).frozen == ()
