"""The facts that checks receive by name, gathered once. One module per fact: a frozen dataclass of plain values.

Plain values only (numbers, strings, tuples, dicts, other dataclasses of this package): facts of a probe travel from a child
process. A fact that could not be had is ``Missing``, with its reason, never a default.
"""

from __future__ import annotations

from dataclasses import dataclass

FACTS = {
    "machine": "the machine and this process's limits; needs no target and no torch",
    "process": "the process that has loaded the target: threads, libraries, default device, how it was started",
    "target": "the target: its kind, the loader's arguments, and the lines that set them",
    "scan": "the contents of the dataset, by attribute path, and the cost of sending them",
    "samples": "some samples, made without workers: shapes, types, bytes, seconds, errors",
    "probe_failures": "probes that hung, died or used too much memory, and at which index",
    "worker": "a worker after its first samples: threads of native libraries, descriptors, memory",
    "round_trip": "whether a batch of torch's own loader arrives, under each start method",
    "randomness": "the same samples in two workers and two epochs: which of them are equal",
    "stream": "an IterableDataset read by several workers: repeated items, and batches per worker",
    "sampler": "the sampler, read for a limited time: its indices, and the batches of each rank",
    "growth": "private memory of a worker over batches, and which attribute is being copied",
    "speed": "seconds per batch without and with workers, and where they are spent",
    "pinning": "whether pinning helps here, and what it costs",
    "paths": "files and folders of this machine that the dataset names",
    "cluster": "a Ray cluster: its nodes, their CPUs, stores and versions, and the dataset's paths there",
}
"""By name: what each fact is. Checks ask for them by these names."""


@dataclass(frozen=True, slots=True)
class Missing:
    """Stands where a fact could not be had. ``reason`` is shown for every check that asked for it."""

    reason: str
