"""Facts as tests want them: everything ordinary, but for what is said."""

from __future__ import annotations

from typing import Any

from stoker._host.cpus import Cpus
from stoker._record.finding import Finding
from stoker._tools.doctor.catalogue import check_of
from stoker._tools.doctor.diagnosis import diagnose
from stoker._tools.doctor.facts.process import ProcessFacts
from stoker._tools.doctor.facts.samples import SampleFacts
from stoker._tools.doctor.facts.target import LoaderArguments, TargetFacts


def loader(**changes: Any) -> LoaderArguments:
    """torch's, with two forked workers and batches of 32."""
    ordinary: dict[str, Any] = {
        "engine": "torch",
        "batch_size": 32,
        "num_workers": 2,
        "prefetch_factor": None,
        "persistent_workers": False,
        "pin_memory": False,
        "drop_last": False,
        "timeout_s": 0.0,
        "in_order": True,
        "start_method": "fork",
        "sampler": "SequentialSampler",
        "batch_sampler": "BatchSampler",
        "shuffle": False,
        "has_set_epoch": False,
        "replicas": None,
        "own_collate": False,
        "own_init": False,
        "batches": 10,
        "samples": 320,
        "site": "train.py:31",
    }
    return LoaderArguments(**{**ordinary, **changes})


def target(**changes: Any) -> TargetFacts:
    """A DataLoader around data.Pictures; what belongs to the loader is passed on to it."""
    ordinary: dict[str, Any] = {
        "name": "train.py:loader",
        "kind": "loader",
        "dataset_class": "data.Pictures",
        "dataset_file": None,
        "dataset_line": None,
        "stream": False,
        "length": 320,
        "has_getitems": False,
        "assumed": False,
    }
    own = {name: value for name, value in changes.items() if name in TargetFacts.__dataclass_fields__}
    rest = {name: value for name, value in changes.items() if name not in own}
    return TargetFacts(**{**ordinary, "loader": loader(**rest), **own})


def process(**changes: Any) -> ProcessFacts:
    """One with torch and nothing else that matters."""
    ordinary: dict[str, Any] = {
        "python_threads": (),
        "native_threads": 1,
        "hazards": (),
        "modules": (),
        "accelerator": None,
        "default_device": "cpu",
        "sharing_strategy": "file_descriptor",
        "start_method": "fork",
        "daemonic": False,
        "interactive": False,
        "torch_threads": 1,
        "threads_by_library": {},
        "versions": {},
    }
    return ProcessFacts(**{**ordinary, **changes})


def samples(**changes: Any) -> SampleFacts:
    """Eight, which took no time worth measuring."""
    return SampleFacts(**{"indices": tuple(range(8)), "leaves": (), **changes})


def cpus(usable: int, machine: int | None = None, **changes: Any) -> Cpus:
    """All of them, unless a machine with more is given."""
    machine = machine or usable
    ordinary = {"affinity": usable, "quota": None, "ranks": 1, "reason": f"this machine has {machine} CPUs"}
    return Cpus(**{"usable": usable, "machine": machine, **ordinary, **changes})


def found(code: str, **facts: Any) -> list[Finding]:
    """What a check finds in these facts, all that it needs."""
    check = check_of(code)
    assert check is not None
    diagnosis = diagnose([check], facts)
    assert diagnosis.skipped == ()
    return list(diagnosis.findings)


def only(code: str, **facts: Any) -> Finding:
    """The one thing that it finds."""
    (finding,) = found(code, **facts)
    return finding
