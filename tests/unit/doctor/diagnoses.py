"""Diagnoses made by hand."""

from __future__ import annotations

from typing import Any

from stoker._record.finding import Edit, Finding, Gain
from stoker._tools.doctor.diagnosis import Diagnosis, Skip
from stoker._tools.doctor.facts import Missing
from stoker._tools.doctor.facts.target import LoaderArguments, TargetFacts


def loader(file: str | None = None, line: int | None = None, **more: Any) -> LoaderArguments:
    values: dict[str, Any] = {
        "engine": "torch",
        "batch_size": 32,
        "num_workers": 4,
        "prefetch_factor": 2,
        "persistent_workers": False,
        "pin_memory": True,
        "drop_last": False,
        "timeout_s": 0.0,
        "in_order": True,
        "start_method": "fork",
        "sampler": "RandomSampler",
        "batch_sampler": "BatchSampler",
        "shuffle": True,
        "has_set_epoch": False,
        "replicas": None,
        "own_collate": False,
        "own_init": False,
        "batches": 100,
        "samples": 3200,
        "site": f"{file.rpartition('/')[2]}:{line}" if file else None,
        "file": file,
        "line": line,
    }
    return LoaderArguments(**(values | more))


def target(file: str | None = None, line: int | None = None, **more: Any) -> TargetFacts:
    values: dict[str, Any] = {
        "name": "train.py:train",
        "kind": "loader",
        "dataset_class": "train.Pictures",
        "dataset_file": None,
        "dataset_line": None,
        "stream": False,
        "length": 3200,
        "has_getitems": False,
        "loader": loader(file, line),
        "assumed": False,
        "file": file,
        "source": "x = 1\n" * 1000,
    }
    return TargetFacts(**(values | more))


def diagnosis(*findings: Finding, facts: dict[str, Any] | None = None, **more: Any) -> Diagnosis:
    values: dict[str, Any] = {
        "subject": "train.py:train (a DataLoader of torch's)",
        "findings": findings,
        "skipped": (
            Skip("STK502", "the dataset is not iterable-style"),
            Skip("STK503", "the dataset is not iterable-style"),
        ),
        "passed": ("STK101", "STK102"),
        "facts": {"scan": Missing("no time"), **(facts or {})},
    }
    return Diagnosis(**(values | more))


BIG = Finding(
    "STK201",
    "high",
    "/dev/shm holds 64 MiB, of which <60> MiB are free: 95%\nand that is little",
    "Start the container with --shm-size=8g.",
    where="/dev/shm",
    numbers={"shm_bytes": 64 << 20, "share": float("nan")},
)
ARGUMENT = Finding(
    "STK703",
    "moderate",
    "there is no accelerator here, and pin_memory=True",
    "Leave pinning off.",
    Edit("pin_memory=False", "pin_memory=True", "train.py:3"),
    Gain(0.12, "measured over 20 batches"),
    where="pin_memory",
)
SMALL = Finding(
    "STK408", "low", "18 tensors of 4 bytes in a sample", "Put them into one.", where="sample['a']"
)
NOTE = Finding("STK704", "none", "pinning takes 0.1 ms", "Nothing has to be done.")
