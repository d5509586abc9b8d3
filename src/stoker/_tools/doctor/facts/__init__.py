"""The facts that checks receive by name, gathered once. One module per fact: a frozen dataclass of plain values.

Plain values only (numbers, strings, tuples, dicts, other dataclasses of this package): facts of a probe travel from a child
process. A fact that could not be had is ``Missing``, with its reason, never a default.
"""

from __future__ import annotations

from dataclasses import dataclass

FACTS = {
    "machine": "the machine and this process's limits; needs no target and no torch",
    "process": "the process that has loaded the target: threads, libraries, default device, how it was started",
    "target": "what was given: its kind, the loader's arguments, where they are written",
    "scan": "the dataset as an object: what it holds, by attribute path, and what it takes to send it",
    "samples": "some samples, made without workers: shapes, types, bytes, seconds, errors",
    "probe_failures": "probes that hung, died or ate memory with the dataset they tried: which, and at which index",
    "worker": "a worker after its first samples: threads of native libraries, descriptors, memory",
    "round_trip": "whether a batch of torch's own loader arrives, under each start method",
    "randomness": "the same samples in two workers and two epochs: which of them are equal",
    "stream": "an IterableDataset read by several workers: what came twice, how batches fall",
    "sampler": "a bounded look at the sampler: its indices, and how many batches each rank gets",
    "growth": "private memory of a worker over batches, and which attribute is being copied",
    "speed": "seconds of a batch without workers and with them; what a batch costs where",
    "pinning": "whether pinning is of use here, and what it costs",
}
"""By name: what each fact is. Checks ask for them by these names."""


@dataclass(frozen=True, slots=True)
class Missing:
    """Stands where a fact could not be had. ``reason`` is shown for every check that asked for it."""

    reason: str
