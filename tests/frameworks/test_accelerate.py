"""Accelerate with loaders that ``stoker.integrations.accelerate`` keeps, and under ``stoker run``, against torch's loader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader as TorchLoader

import stoker
from tests.frameworks.packages import needs
from tests.frameworks.processes import in_fork, on_ranks
from tests.frameworks.samples import Batches, Numbers, NumberStream, flat, numbers

accelerate = needs("accelerate")

LENGTH = 26
OWN = {"executor": "thread", "name": "mine", "rng": "sample"}


def accelerator(kept: bool, **options: Any) -> Any:
    """On the CPU."""
    from stoker.integrations.accelerate import keep

    config = accelerate.DataLoaderConfiguration(use_seedable_sampler=True, **options)
    made = accelerate.Accelerator(cpu=True, dataloader_config=config)
    return keep(made) if kept else made


def loader(cls: Any, stream: bool, workers: Any) -> Any:
    """With stoker's own arguments where it is stoker's."""
    data, order = (NumberStream(LENGTH), {}) if stream else (Numbers(LENGTH), {"shuffle": True})
    own = OWN if cls is stoker.DataLoader else {}
    return cls(data, batch_size=4, num_workers=workers, **order, **own)


def trained(cls: Any, stream: bool, workers: Any, options: dict[str, Any], kept: bool = True) -> Batches:
    """Two epochs, then one that begins at its third batch."""
    torch.manual_seed(5)
    acc = accelerator(kept, **options)
    prepared = acc.prepare(loader(cls, stream, workers))
    batches = [numbers(batch) for _ in range(2) for batch in prepared]
    skipped = acc.skip_first_batches(prepared, 2)
    batches += [numbers(batch) for batch in skipped]
    if cls is stoker.DataLoader:
        for each in (prepared, skipped):
            base = each.base_dataloader
            assert isinstance(base, stoker.DataLoader)
            assert {name: getattr(base, name) for name in OWN} == OWN
            dispatched = isinstance(prepared, accelerate.data_loader.DataLoaderDispatcher)
            if acc.is_main_process or not dispatched:  # else the first rank reads for all
                assert base.stats()["batches"] > 0
    return batches


@pytest.mark.parametrize("workers", [0, 2, "auto"])
@pytest.mark.parametrize("stream", [False, True])
def test_one_rank(workers: Any, stream: bool) -> None:
    ours = in_fork(trained, stoker.DataLoader, stream, workers, {})
    torchs = in_fork(trained, TorchLoader, stream, 0 if workers == "auto" else workers, {})
    if stream and workers == "auto":
        assert sorted(flat(ours)[: 2 * LENGTH]) == sorted([*range(LENGTH), *range(LENGTH)])
    else:
        assert ours == torchs


@pytest.mark.parametrize("options", [{}, {"dispatch_batches": True}, {"split_batches": True}], ids=str)
@pytest.mark.parametrize("stream", [False, True])
def test_two_ranks(options: dict[str, Any], stream: bool) -> None:
    torchs = on_ranks(2, trained, TorchLoader, stream, 1, options)
    assert on_ranks(2, trained, stoker.DataLoader, stream, 1, options) == torchs
    if not stream:
        assert on_ranks(2, lambda: trained(TorchLoader, stream, 1, options, False), swapped=True) == torchs


def leg(folder: Path, first: bool, workers: int, stream: bool, epochs: int) -> Batches:
    """The first one saves a state after its fourth batch of the second epoch, and goes on; the other begins at that state."""
    torch.manual_seed(5)
    acc = accelerator(True)
    prepared = acc.prepare(loader(stoker.DataLoader, stream, workers))
    if not first:
        acc.load_state(str(folder))
    seen = []
    for epoch in range(epochs):
        for number, batch in enumerate(prepared):
            seen.append(numbers(batch))
            if first and (epoch, number) == (1, 1):
                acc.wait_for_everyone()
                acc.save_state(str(folder))
    return seen


@pytest.mark.parametrize("stream", [False, True])
def test_a_saved_state_goes_on_in_mid_epoch(stream: bool, tmp_path: Path) -> None:
    whole = in_fork(leg, tmp_path, True, 2, stream, 3)
    rest = in_fork(leg, tmp_path, False, 2 if stream else 0, stream, 2)
    per_epoch = len(whole) // 3
    assert rest == whole[per_epoch + 2 :]


def test_a_saved_state_on_two_ranks(tmp_path: Path) -> None:
    whole = on_ranks(2, leg, tmp_path, True, 1, False, 2)
    rest = on_ranks(2, leg, tmp_path, False, 1, False, 1)
    assert rest == [each[len(each) // 2 + 2 :] for each in whole]


def elastic(folder: Path, first: bool) -> Batches:
    """The sampler divides; Accelerate must not do so again."""
    acc = accelerator(True)
    data = Numbers(24)
    sampler = stoker.ElasticDistributedSampler(data, seed=3)
    prepared = acc.prepare(stoker.DataLoader(data, batch_size=2, sampler=sampler, num_workers=1))
    if not first:
        acc.load_state(str(folder))
    seen = []
    for number, batch in enumerate(prepared):
        seen.append(numbers(batch))
        if first and number == 2:
            acc.wait_for_everyone()
            acc.save_state(str(folder))
            break
    return seen


@pytest.mark.parametrize("then", [2, 1])
def test_an_elastic_sampler_resumes_on_another_number_of_ranks(then: int, tmp_path: Path) -> None:
    first = on_ranks(2, elastic, tmp_path, True)
    rest = on_ranks(then, elastic, tmp_path, False)
    assert sorted(flat([batch for rank in (*first, *rest) for batch in rank])) == list(range(24))


def test_a_state_of_another_kind_is_named() -> None:
    def body() -> None:
        prepared = accelerator(True).prepare(loader(stoker.DataLoader, False, 0))
        prepared.load_state_dict({})
        with pytest.raises(ValueError, match="lacks 'loader' and 'iteration'"):
            prepared.load_state_dict({"_num_yielded": 3})

    in_fork(body)
