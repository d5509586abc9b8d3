"""Measures what of a sample's work a cache could keep (``sample_parts``), in a fork.

``subject.trial``: ``seconds`` for all of it (1 by default).
"""

from __future__ import annotations

from itertools import islice
from typing import Any

from torch.utils.data import Dataset

from stoker._pickling.instances import own_dict
from stoker._runtime.executors.process.start_method import live_hazards
from stoker._runtime.worker.process.process_setup import single_thread
from stoker._tools.sandbox.child import NoAnswer, run
from stoker._tools.sandbox.outcome import FactUnavailable
from stoker._tools.sandbox.subject import Subject
from stoker._tools.tune.instruments.sample_parts import SampleParts, measured_parts

_SECONDS = 1.0
_SAMPLES = 16
_MOST = 64
"""Datasets inside of datasets that are looked at."""

_PATIENCE = 4.0
"""The child is given up after so many times the planned time: imports and a first sample may take longer."""


def probe(subject: Subject) -> SampleParts:
    """Raises FactUnavailable for streams, for datasets without plain indices, and where samples cannot be made in a fork."""
    if subject.is_stream or not hasattr(subject.dataset, "__getitem__"):
        raise FactUnavailable("a stream has no samples to look up")
    if _is_cached(subject.dataset):
        raise FactUnavailable("its samples are cached already")
    if live_hazards():
        raise FactUnavailable("threads are running that do not survive a fork")
    indices = list(islice((index for index in subject.indices() if isinstance(index, int)), _SAMPLES))
    if not indices:
        raise FactUnavailable("its indices are no whole numbers")
    seconds = float(subject.trial.get("seconds", _SECONDS))

    def measure() -> SampleParts:
        single_thread()
        return measured_parts(subject.dataset, indices, seconds)

    [found] = run([measure], _PATIENCE * seconds + 1.0, quiet=True)
    if isinstance(found, NoAnswer):
        raise FactUnavailable(found.reason)
    assert isinstance(found, SampleParts)
    return found


def _is_cached(dataset: Any) -> bool:
    """Whether it, a dataset inside of it, or a function that one of them keeps is a cache already: stoker's, or functools'."""
    datasets = [dataset]
    for each in datasets:  # grows while it is iterated
        values = list((own_dict(each) or {}).values())
        if any(callable(getattr(type(one), "cache_info", None)) for one in (each, *values)):
            return True
        inner = [
            one
            for value in values
            for one in (value if isinstance(value, list) and len(value) <= _MOST else [value])
        ]
        datasets += [one for one in inner if isinstance(one, Dataset)][: max(0, _MOST - len(datasets))]
    return False
