"""torchdata: stoker's loader in the place of its StatefulDataLoader, and what ``stoker run`` makes of one (nothing)."""

from __future__ import annotations

import io
import itertools
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import RandomSampler

import stoker
from stoker._record import journal
from tests.frameworks.packages import needs
from tests.frameworks.processes import in_fork
from tests.frameworks.samples import Batches, Numbers, numbers
from tests.resume import orders, streams
from tests.warm import environment

torchdata = needs("torchdata.stateful_dataloader", "torchdata.stateful_dataloader.sampler")
StatefulDataLoader: Any = torchdata.StatefulDataLoader
LENGTH, BATCH = 22, 4

Legs = tuple[Batches, Batches, Batches, Batches]
"""What is left of an epoch and the next one: of the loader that was saved, and of the one that was loaded."""


def seeded(seed: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def order(name: str) -> dict[str, Any]:
    """Of the loader, for an order that torchdata's loader and ours read alike."""
    data, theirs = Numbers(LENGTH), torchdata.sampler
    match name:
        case "random":
            return {"sampler": theirs.RandomSampler(data, generator=seeded())}
        case "replacement":
            return {
                "sampler": theirs.RandomSampler(data, replacement=True, num_samples=30, generator=seeded())
            }
        case "distributed":
            return {"sampler": theirs.StatefulDistributedSampler(data, num_replicas=2, rank=1, seed=5)}
        case "batches":
            inner = theirs.RandomSampler(data, generator=seeded())
            return {"batch_sampler": theirs.BatchSampler(inner, BATCH, False), "batch_size": 1}
        case "batches of torch's":
            inner = RandomSampler(data, generator=seeded())
            return {"batch_sampler": theirs.BatchSampler(inner, BATCH, False), "batch_size": 1}
        case "counted":
            return {"sampler": orders.Counted(LENGTH)}
    return {}


def loader(cls: Any, name: str = "", **options: Any) -> Any:
    return cls(Numbers(LENGTH), **{"batch_size": BATCH, **order(name), **options})


def legs(saving: Any, loading: Any, taken: int, read: Any = numbers) -> Legs:
    """A loader is saved after so many batches, as a script would do it, and another one goes on."""
    iterator = iter(saving)
    for _ in itertools.islice(iterator, taken):
        pass
    file = io.BytesIO()
    torch.save({"loader": saving.state_dict()}, file)
    left, following = [read(batch) for batch in iterator], [read(batch) for batch in saving]
    file.seek(0)
    loading.load_state_dict(torch.load(file)["loader"])
    return left, following, [read(batch) for batch in loading], [read(batch) for batch in loading]


def map_style(cls: Any, name: str, taken: int, workers: tuple[int, int], every: int = 1) -> Legs:
    made = [loader(cls, name, num_workers=each, snapshot_every_n_steps=every) for each in workers]
    return legs(made[0], made[1], taken)


def compared(name: str, taken: int, workers: int = 0, every: int = 1) -> tuple[Legs, list[Legs]]:
    """torchdata's legs with so many workers, and ours with others."""
    ours = [map_style(stoker.DataLoader, name, taken, each, every) for each in ((0, 2), (2, 0))]
    return map_style(StatefulDataLoader, name, taken, (workers, workers), every), ours


@pytest.mark.parametrize(
    "name", ["", "random", "replacement", "distributed", "batches", "batches of torch's", "counted"]
)
def test_it_goes_on_in_mid_epoch_as_torchdatas_does(name: str) -> None:
    """With any number of workers."""
    expected, found = in_fork(compared, name, 2, 0, 2)
    assert found == [expected] * 2
    assert expected[:2] == expected[2:]
    assert len(expected[2]) == len(expected[3]) - 2 > 0


@pytest.mark.parametrize("name", ["", "distributed", "batches of torch's", "counted"])
def test_it_goes_on_as_torchdatas_does_with_workers(name: str) -> None:
    """But for torchdata's RandomSampler: with workers, its loader draws the order of an epoch twice."""
    expected, found = in_fork(compared, name, 2, 2)
    assert found == [expected] * 2


@pytest.mark.parametrize("name", ["", "random", "distributed", "batches", "counted"])
def test_after_the_last_batch_the_next_epoch_is_whole(name: str) -> None:
    """A sampler's state may mean the end of this epoch (distributed), or the beginning of the next (counted)."""
    taken = len(loader(stoker.DataLoader, name))
    expected, found = in_fork(compared, name, taken)
    if name == "counted":  # torchdata begins the next epoch at once
        expected = (*expected[:2], *expected[:2])
    assert found == [expected] * 2
    assert [len(each) for each in expected] == [0, taken] * 2


def shuffled(cls: Any, saved: int, loaded: int) -> tuple[Batches, Legs]:
    """The first epoch, and legs."""
    first, saving, loading = [
        loader(cls, shuffle=True, generator=seeded(), num_workers=each) for each in (0, saved, loaded)
    ]
    return [numbers(batch) for batch in first], legs(saving, loading, 2)


def test_a_shuffled_epoch_is_torchs_and_not_torchdatas() -> None:
    """If the last line fails, torchdata shuffles as torch does: the note in docs/differences.md can go."""
    torchs = [numbers(batch) for batch in loader(TorchLoader, shuffle=True, generator=seeded())]
    whole, (left, following, rest, after) = in_fork(shuffled, stoker.DataLoader, 2, 0)
    assert whole == torchs
    assert (left, following) == (rest, after)
    assert left == torchs[2:]
    assert shuffled(StatefulDataLoader, 0, 0)[0] != torchs


def values(batch: Any) -> list[int]:
    return list(batch["value"].tolist())


def stream_legs(cls: Any, data: Any, taken: int, workers: tuple[int, int], options: dict[str, Any]) -> Legs:
    saving, loading = [cls(data(LENGTH), batch_size=BATCH, num_workers=each, **options) for each in workers]
    return legs(saving, loading, taken, values)


@pytest.mark.parametrize(
    "data", [streams.Plain, streams.Generating, streams.Placed, streams.Both, streams.Itself]
)
def test_streams_go_on_as_torchdatas_do(data: Any) -> None:
    """The dataset has a state, or its iterator, both or neither; a later snapshot is made up for by reading."""

    def compared(workers: int, taken: int, options: dict[str, Any]) -> list[Legs]:
        both = (StatefulDataLoader, stoker.DataLoader)
        return [stream_legs(cls, data, taken, (workers, workers), options) for cls in both]

    lasting = {"persistent_workers": True, "snapshot_every_n_steps": 3}
    for workers, taken, options in ((0, 2, {}), (0, 6, {}), (2, 4, lasting)):
        expected, found = in_fork(compared, workers, taken, options)
        assert found == expected
        assert expected[:2] == expected[2:]
        assert [len(each) for each in expected] == [6 - taken, 6] * 2


def test_a_stream_without_workers_is_one_of_one_worker_and_not_of_two() -> None:
    def other_workers() -> tuple[Legs, str]:
        found = stream_legs(stoker.DataLoader, streams.Placed, 2, (0, 1), {})
        with pytest.raises(ValueError, match="num_workers=2") as refused:
            stream_legs(stoker.DataLoader, streams.Placed, 2, (2, 1), {})
        return found, str(refused.value)

    found, refused = in_fork(other_workers)
    assert found[:2] == found[2:]
    assert "it has 2 stream(s)" in refused


class Calls(Numbers):
    """A map-style dataset with a state: it counts the calls."""

    calls = 0

    def __getitem__(self, index: int) -> torch.Tensor:
        self.calls += 1
        return torch.tensor([index, self.calls])

    def state_dict(self) -> dict[str, int]:
        return {"calls": self.calls}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.calls = state["calls"]


def called(cls: Any, workers: int) -> Batches:
    """The number of the first call in every batch that is left, with the number of its sample."""
    saving, loading = [cls(Calls(LENGTH), batch_size=BATCH, num_workers=workers) for _ in range(2)]
    return legs(saving, loading, 2, lambda batch: batch[0].tolist())[2]


def test_the_state_of_a_map_style_dataset_is_that_of_this_process() -> None:
    """torchdata saves that of each worker, which here does not get the same batches again."""
    expected = called(StatefulDataLoader, 0)
    assert called(stoker.DataLoader, 0) == expected == [[8, 9], [12, 13], [16, 17], [20, 21]]
    assert in_fork(called, stoker.DataLoader, 1) == [[8, 1], [12, 5], [16, 9], [20, 13]]
    assert in_fork(called, StatefulDataLoader, 1) == expected


def contract(cls: Any, workers: int) -> list[Any]:
    """First samples of batches, by which one sees when a state takes effect."""

    def made(every: int | None = 1) -> Any:
        return loader(cls, num_workers=workers, snapshot_every_n_steps=every)

    def pulled(iterator: Any, count: int) -> int:
        return [numbers(batch)[0] for batch in itertools.islice(iterator, count)][-1]

    first, second, third = made(), made(), made()
    iterator = iter(first)
    pulled(iterator, 2)
    state = first.state_dict()
    second.load_state_dict(state)
    second.load_state_dict({})
    before = iter(third)
    pulled(before, 1)
    third.load_state_dict(state)
    seen: list[Any] = [pulled(iter(second), 1), pulled(before, 1)]
    again = made()
    again.load_state_dict(third.state_dict())
    seen += [pulled(iter(again), 1), pulled(iter(third), 1)]
    first.load_state_dict({})
    seen += [pulled(iterator, 1), pulled(iter(first), 1)]
    for every in (None, 0, 5):
        saving, loading = made(every), made(every)
        iterator = iter(saving)
        pulled(iterator, 3)
        loading.load_state_dict(saving.state_dict())
        seen.append(pulled(iter(loading), 1))
    return seen


@pytest.mark.parametrize("workers", [0, 2])
def test_loading_does_what_torchdatas_does(workers: int) -> None:
    """``{}`` leaves what was loaded. Iterators in use go on; the next one begins where the state was."""
    found = in_fork(contract, stoker.DataLoader, workers)
    assert found == in_fork(contract, StatefulDataLoader, workers)
    assert found == [8, 4, 8, 8, 8, 0, 12, 12, 12]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_state_of_torchdatas_is_refused(workers: int) -> None:
    def refused() -> str:
        theirs = loader(StatefulDataLoader, num_workers=workers)
        next(iter(theirs))
        with pytest.raises(ValueError, match="It looks like one of torchdata's StatefulDataLoader") as raised:
            loader(stoker.DataLoader).load_state_dict(theirs.state_dict())
        return str(raised.value)

    assert "finish that epoch with it" in in_fork(refused)


class Derived(StatefulDataLoader):
    """A user's."""


def under_run(cls: Any, workers: int) -> tuple[Legs, list[str], str]:
    """What it gives, what the log says, and whose iterator it is."""
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("stoker").addHandler(handler)
    found = map_style(cls, "random", 3, (workers, workers))
    made = loader(cls, num_workers=workers)
    assert not isinstance(made, stoker.DataLoader)
    return found, said, type(iter(made)).__module__


@pytest.mark.parametrize(("cls", "workers"), [(StatefulDataLoader, 0), (StatefulDataLoader, 2), (Derived, 0)])
def test_under_run_it_stays_torchdatas_and_the_log_says_so(cls: Any, workers: int) -> None:
    found, said, whose = in_fork(under_run, cls, workers, swapped=True)
    assert (found, [], whose) == in_fork(under_run, cls, workers)
    assert whose == "torchdata.stateful_dataloader.stateful_dataloader"
    assert said == [f"loaders of {cls.__module__}.{cls.__name__} stay torch's: it has an engine of its own"]


def with_accelerate(kept: bool) -> tuple[str, Batches]:
    """Whose loader Accelerate has when it is asked for torchdata's, and an epoch in two legs."""
    accelerate = needs("accelerate")
    from stoker.integrations.accelerate import keep

    config = accelerate.DataLoaderConfiguration(use_stateful_dataloader=True)
    made = accelerate.Accelerator(cpu=True, dataloader_config=config)
    if kept:
        keep(made)
    given = stoker.DataLoader if kept else TorchLoader
    saving, loading = [made.prepare(loader(given, num_workers=2)) for _ in range(2)]
    iterator = iter(saving)
    seen = [numbers(batch) for batch in itertools.islice(iterator, 3)]
    loading.load_state_dict(saving.state_dict())
    return type(saving.base_dataloader).__module__.split(".")[0], seen + [numbers(each) for each in loading]


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("swapped", [False, True])
def test_accelerate_has_torchdatas_loader_unless_it_keeps_ours(kept: bool, swapped: bool) -> None:
    batches = [numbers(batch) for batch in loader(TorchLoader)]
    found = in_fork(with_accelerate, kept, swapped=swapped)
    assert found == ("stoker" if kept else "torchdata", batches)


TRAIN = """
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader
first = StatefulDataLoader(range(20), batch_size=4, num_workers=1)
for number, batch in enumerate(first):
    if number == 2:
        state = first.state_dict()
        break
second = StatefulDataLoader(range(20), batch_size=4, num_workers=1)
second.load_state_dict(state)
print([batch.tolist()[0] for batch in second], type(second).__module__, type(DataLoader([0])).__module__)
"""


def test_stoker_run_measures_it(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    record = tmp_path / "run.json"
    ran = subprocess.run(
        [sys.executable, "-m", "stoker", "run", "-o", record, tmp_path / "train.py"],
        capture_output=True, text=True, check=True, env=environment(),
    )  # fmt: skip
    assert "[12, 16] torchdata.stateful_dataloader.stateful_dataloader stoker.loader" in ran.stdout
    assert "stay torch's: it has an engine of its own" in ran.stdout + ran.stderr
    read = journal.read(record).loaders
    assert [(each.engine, each.totals.steps) for each in read] == [("torch", 3), ("torch", 2)]
