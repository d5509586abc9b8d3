"""Receipts of loaders that Accelerate built: ``stoker verify`` says whether its ranks and resumes handed over every sample once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import DistributedSampler

import stoker
from stoker._tools.verify.verification import verify
from tests.frameworks.packages import needs
from tests.frameworks.processes import in_fork, on_ranks
from tests.frameworks.samples import Numbers

accelerate = needs("accelerate")

LENGTH = 64


def answers(*paths: Path) -> dict[str, str]:
    """What is said, by code."""
    return {each.code: each.text for each in verify(paths).answers}


def accelerator(kept: bool) -> Any:
    """On the CPU."""
    from stoker.integrations.accelerate import keep

    config = accelerate.DataLoaderConfiguration(use_seedable_sampler=True)
    made = accelerate.Accelerator(cpu=True, dataloader_config=config)
    return keep(made) if kept else made


def epoch(folder: Path, kept: bool, divided: bool) -> int:
    """Read an epoch on this rank, and save its receipt. Says how many samples came."""
    torch.manual_seed(5)
    acc = accelerator(kept)
    data = Numbers(LENGTH)
    cls: Any = stoker.DataLoader if kept else TorchLoader
    order: dict[str, Any] = (
        {"sampler": DistributedSampler(data, 2, acc.process_index)} if divided else {"shuffle": True}
    )
    prepared = acc.prepare(cls(data, batch_size=4, **order))
    samples = sum(len(batch) for batch in prepared)
    prepared.base_dataloader.receipt().save(folder / f"rank{acc.process_index}.receipt")
    return samples


@pytest.mark.parametrize("kept", [True, False])
def test_ranks_that_accelerate_divides_cover_every_sample_once(kept: bool, tmp_path: Path) -> None:
    assert on_ranks(2, epoch, tmp_path, kept, False, swapped=not kept) == [LENGTH // 2] * 2
    assert answers(tmp_path) == {"complete": f"every one of the {LENGTH} samples exactly once over 2 ranks"}


def test_a_sampler_that_divides_before_accelerate_does_so_again_is_named(tmp_path: Path) -> None:
    """huggingface/accelerate#4199, under ``stoker run``. ``keep`` does not divide a second time."""
    run, kept = tmp_path / "run", tmp_path / "kept"
    for folder in (run, kept):
        folder.mkdir()
    assert on_ranks(2, epoch, run, False, True, swapped=True) == [LENGTH // 4] * 2
    found = answers(run)
    assert list(found) == ["double-sharding"]
    assert "BatchSamplerShard by 2 and DistributedSampler by 2" in found["double-sharding"]
    assert on_ranks(2, epoch, kept, True, True) == [LENGTH // 2] * 2
    assert list(answers(kept)) == ["complete"]


def leg(folder: Path, number: int) -> None:
    """Go on from the state of the leg before, take three batches, save a state; the last leg takes all."""
    torch.manual_seed(5)
    acc = accelerator(True)
    prepared = acc.prepare(stoker.DataLoader(Numbers(LENGTH), batch_size=4, shuffle=True, num_workers=1))
    if number:
        acc.load_state(str(folder / f"state{number - 1}"))
    for place, _ in enumerate(prepared):
        if place == 2 and number < 2:
            acc.save_state(str(folder / f"state{number}"))
            break
    prepared.base_dataloader.receipt().save(folder / f"leg{number}.receipt")


def test_the_legs_of_a_run_that_resumed_twice_add_up(tmp_path: Path) -> None:
    for number in range(3):
        in_fork(leg, tmp_path, number)
    found = answers(tmp_path)
    assert found["complete"] == f"every one of the {LENGTH} samples exactly once"
    assert found["adds-up"].startswith("3 legs")
    assert "repeated" not in found
