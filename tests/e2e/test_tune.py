"""``stoker.tune`` on real loaders. That answers are good is shown by benchmarks/tuning.py; here, that there are some."""

from __future__ import annotations

import time

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from stoker._runtime.simulation.setting import Setting
from stoker._tools.tune.tuning import tune


class Waiting(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        time.sleep(0.002)
        return torch.full((4,), float(index))


class Broken(Waiting):
    def __getitem__(self, index):
        raise ValueError(f"no sample {index}")


class Lines(IterableDataset):
    def __iter__(self):
        for index in range(200):
            time.sleep(0.001)
            yield torch.full((4,), float(index))


class OneScratch(Waiting):
    """Another thread may fill the tensor before it is copied."""

    def __init__(self):
        self.scratch = torch.empty(4)

    def __getitem__(self, index):
        self.scratch.fill_(index)
        time.sleep(0.002)
        return self.scratch.clone()


def step(batch):
    assert batch.shape[1] == 4
    time.sleep(0.001)


def test_a_loader_is_tuned_by_running_it_until_ctrl_c():
    shares, bests = [], []

    def told(what, share, best):
        shares.append(share)
        bests.append(best)
        if sum(each is not None for each in bests) > 2:
            raise KeyboardInterrupt

    loader = DataLoader(Waiting(), batch_size=4, num_workers=1)
    found = tune(loader, step=step, budget_s=12.0, save=False, progress=told)
    assert found.stopped == "interrupted"
    assert found.failure == ""
    assert found.baseline == Setting(1, prefetch=2, engine="torch")
    assert found.demand.source == "step"
    assert found.demand.step_ns > 1_000_000
    measured = {each.setting for each in found.points if each.blocks}
    assert {found.baseline, found.recommended} <= measured
    assert found.work is not None
    assert found.work.batch_ns
    assert shares == sorted(shares)
    assert bests[0] is None
    assert next(iter(loader)).shape == (4, 4)  # it is the user's, and works as before


def test_threads_that_would_change_the_batches_are_not_tried():
    """Threads once won, because samples wait, and each of their batches was wrong."""
    found = tune(DataLoader(OneScratch(), batch_size=8, num_workers=1), budget_s=10.0, save=False)
    assert not found.recommended.shares
    assert not any(each.setting.shares for each in found.points)
    assert any("they would change the batches: " in each for each in found.warnings), found.warnings


def test_samples_that_raise_and_streams_that_nobody_shares_out():
    broken = tune(Broken(), batch_size=4, budget_s=3.0, save=False)
    assert "ValueError: no sample" in broken.failure
    assert broken.recommended.workers >= 1
    assert not broken.points
    lines = tune(Lines(), batch_size=4, budget_s=3.0, save=False)
    assert lines.recommended.workers <= 1
    assert any("whole stream" in each for each in lines.warnings)


def test_a_budget_of_a_second_ends_with_a_safe_answer(tmp_path):
    file = tmp_path / "data.py"
    file.write_text("data = [1, 2, 3, 4]\n")
    found = tune(f"{file}:data", budget_s=1.0, save=False)
    assert found.recommended.workers >= 1
    assert found.stopped == "budget"
    assert "Nothing was measured" in found.verdict
