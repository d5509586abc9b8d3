"""Traces that torch.profiler makes here: read for what the loop waited for, and merged with a run's own."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

import stoker
from stoker._record.schema import RunRecord
from stoker._tools.report.profiler import ranks
from stoker._tools.report.profiler.verdict import judge
from stoker._tools.report.trace import trace
from stoker._tools.report.trace.validation import violations
from stoker.cli.main import main

STEPS = 6


class Sleepy(torch.utils.data.Dataset):
    """Samples that take a while to come."""

    def __init__(self, sleep_s: float, length: int) -> None:
        self.sleep_s, self.length = sleep_s, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(self.sleep_s)
        return torch.full((8,), float(index))


@contextmanager
def profiler(**options: Any) -> Iterator[torch.profiler.profile]:
    """Over steps, all of them; that it warms up in none is what this is about."""
    cpu = [torch.profiler.ProfilerActivity.CPU]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        schedule = torch.profiler.schedule(wait=0, warmup=0, active=STEPS, repeat=1)
        with torch.profiler.profile(activities=cpu, schedule=schedule, **options) as found:
            yield found


def train(loader: Iterable[torch.Tensor], profile: torch.profiler.profile, step_s: float) -> None:
    for batch in loader:
        batch.sum()
        time.sleep(step_s)
        profile.step()


@pytest.mark.parametrize("loader_class", [stoker.DataLoader, torch.utils.data.DataLoader])
def test_a_slow_loader_and_a_slow_step_are_told_apart(loader_class: Any, tmp_path: Path) -> None:
    found = {}
    for name, sample_s, step_s in (("data", 0.012, 0.0), ("step", 0.0, 0.02)):
        folder = tmp_path / name
        packed = torch.profiler.tensorboard_trace_handler(str(folder), use_gzip=True)
        with profiler(on_trace_ready=packed, profile_memory=True) as profile:
            train(loader_class(Sleepy(sample_s, 2 * STEPS), batch_size=2), profile, step_s)
        assert [each.name.endswith(".pt.trace.json.gz") for each in folder.iterdir()] == [True]
        found[name] = judge(ranks.read([folder]))
    slow, fast = found["data"], found["step"]
    assert not slow.on_device
    assert slow.data_share is not None
    assert fast.data_share is not None
    assert slow.data_share > 0.5 > fast.data_share
    assert slow.findings[0].code == "data-starved"
    assert "calls of next()" in slow.evidence[0]
    inside = "num_workers=0  →  num_workers=4" if loader_class is not stoker.DataLoader else "None"
    assert str(slow.findings[0].edit) == inside
    shown = CliRunner().invoke(main, ["report", str(tmp_path / "data")])
    assert shown.exit_code == 0
    assert shown.output.startswith("Verdict   The training loop waits for data")


@pytest.mark.parametrize("executor", ["inline", "thread", "process"])
def test_our_calls_of_next_are_where_the_profiler_saw_them(executor: Any, tmp_path: Path) -> None:
    workers = 0 if executor == "inline" else 1
    loader = stoker.DataLoader(
        Sleepy(0.005, 2 * STEPS),
        batch_size=2,
        num_workers=workers,
        executor=executor,
        prefetch_factor=None if not workers else 2,
    )
    with loader, profiler() as profile:
        train(loader, profile, 0.01)
        record = RunRecord.from_dict(loader.stats()["record"])
    profile.export_chrome_trace(str(tmp_path / "theirs.json"))
    merged = trace.merge(record, tmp_path / "theirs.json", tmp_path / "both.json")
    assert merged.overlap
    both = json.loads((tmp_path / "both.json").read_text())["traceEvents"]
    assert len(both) == merged.events
    groups = {each["pid"] for each in both if each.get("cat") == "stoker"}
    ours = [each for each in both if each["pid"] in groups]
    assert {each.get("cat") for each in ours} == {None, "stoker"}
    assert violations(ours) == []
    label = "enumerate(DataLoader)#StokerIter.__next__"
    theirs = [(each["ts"], each["ts"] + each["dur"]) for each in both if each["name"] == label]
    theirs.sort()
    calls: dict[str, list[float]] = {}
    for each in ours:
        if each["name"].startswith("next "):
            calls.setdefault(each["name"], []).append(each["ts"])
    assert len(calls) == STEPS
    # The middle of each of our calls lies in the profiler's span of the same call, and so do its ends but for a millisecond.
    for (began, ended), (asked, given) in zip(theirs, calls.values(), strict=False):
        assert began < (asked + given) / 2 < ended
        assert began - 1000 < asked
        assert given < ended + 1000
    assert len(theirs) >= STEPS - 1
