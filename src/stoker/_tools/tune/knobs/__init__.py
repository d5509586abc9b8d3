"""The tuner's knobs: the arguments that it may change. A new knob is one module here and one entry in ``KNOBS``."""

from __future__ import annotations

from stoker._tools.tune.knobs.device import Device
from stoker._tools.tune.knobs.executor import ExecutorKnob
from stoker._tools.tune.knobs.knob import Knob
from stoker._tools.tune.knobs.multiprocessing_context import MultiprocessingContext
from stoker._tools.tune.knobs.num_workers import NumWorkers
from stoker._tools.tune.knobs.persistent_workers import PersistentWorkers
from stoker._tools.tune.knobs.pin_memory import PinMemory
from stoker._tools.tune.knobs.prefetch_factor import PrefetchFactor
from stoker._tools.tune.knobs.split_batches import SplitBatches
from stoker._tools.tune.knobs.threads_per_worker import ThreadsPerWorker

KNOBS: tuple[Knob, ...] = (
    NumWorkers(),
    ExecutorKnob(),
    ThreadsPerWorker(),
    PrefetchFactor(),
    MultiprocessingContext(),
    SplitBatches(),
    PinMemory(),
    Device(),
    PersistentWorkers(),
)
"""In the order in which they are tried and named. ``num_workers`` is the first: others mean nothing without workers."""
