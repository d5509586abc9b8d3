"""From a real run to its verdict: what was measured adds up, whatever the machine is doing meanwhile."""

from __future__ import annotations

import time

import pytest
from torch.utils.data import Dataset

from stoker import DataLoader
from stoker._record.schema import CAUSES, STAGES, RunRecord
from stoker._tools.report.verdict import screen
from stoker._tools.report.verdict.verdict import judge


class Sleeping(Dataset):
    def __len__(self) -> int:
        return 128

    def __getitem__(self, index: int) -> int:
        time.sleep(0.002)
        return index


@pytest.mark.parametrize(("workers", "executor"), [(0, None), (2, "thread"), (2, "process")])
def test_the_verdict_of_a_run_accounts_for_all_of_its_waiting(workers, executor):
    loader = DataLoader(Sleeping(), batch_size=4, num_workers=workers, executor=executor, name="sleepers")
    for _ in loader:
        pass
    record = RunRecord.from_dict(loader.stats()["record"])
    (one,) = record.loaders
    assert sum(each.ns for each in one.blame) == pytest.approx(one.totals.wait_ns, rel=0.001)
    assert {each.stage for each in one.blame} <= set(STAGES)
    assert {each.cause for each in one.blame} <= set(CAUSES)
    verdict = judge(record, price_per_hour=1.0)
    (told,) = verdict.loaders
    assert told.steps == 32
    assert told.causes.wait_ns == pytest.approx(one.totals.wait_ns, rel=0.001)
    assert told.causes.severity == "high", "the loop does nothing but wait"
    assert "sleepers" in verdict.headline
    assert told.findings
    text = screen.render(verdict)
    assert len(text.splitlines()) <= 24
    assert "100 %" in text
    loader.close()
