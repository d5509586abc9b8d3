"""The codes of a verdict's findings. They are stable, because other tools rely on them."""

from __future__ import annotations

from dataclasses import dataclass

from stoker._record import finding

CODES = {
    "not-data": "the loader is not what limits this run",
    "more-workers": "more workers would make batches fast enough, or faster",
    "fewer-workers": "there are more workers than CPUs",
    "threads-per-worker": "workers compute with several threads each, more than there are CPUs",
    "cheaper-samples": "all CPUs are busy, so a sample must cost less",
    "slow-reads": "samples wait for storage, network, a lock or a sleep, and more workers would not help",
    "use-threads": "workers that only wait can be threads",
    "use-processes": "threads wait for each other at the interpreter's lock",
    "memory-bandwidth": "workers wait for memory",
    "cpu-quota": "the cgroup's quota is used up",
    "cpu-neighbours": "other processes have the CPUs",
    "no-batch": "no batch came",
    "dying-workers": "workers died while the loop waited for them",
    "slow-worker": "one worker takes much longer than the others",
    "slow-samples": "a few samples take much longer than the others",
    "deeper-window": "too few batches are made ahead, given how much their times differ",
    "any-order": "finished batches wait for an earlier one",
    "slow-sampler": "the sampler, in the training process, is slow",
    "heavy-batches": "opening a batch takes the training process a long time",
    "slow-pinning": "copying into pinned memory takes a long time",
    "late-wake": "the training process notices finished batches late",
    "persistent-workers": "workers start again in every epoch",
    "slow-start": "the first batch comes late",
    "no-readings": "the workers' CPU times were not measured",
    "stoker-loader": "the same script with stoker's DataLoader",
    "data-starved": "devices have nothing to do while the loop waits for a batch",
    "exposed-copy": "devices do nothing else while batches are copied to them",
    "launch-bound": "devices finish kernels faster than the host launches them",
    "host-work": "devices wait for what the host does between operations",
    "host-full": "the host's CPUs are too busy to launch work in time",
    "host-sync": "the host waits for a device, which then has nothing to do",
    "late-rank": "ranks wait in collectives for one that is late",
    "memory-growing": "more memory is allocated from step to step",
}
"""Every code that a verdict may use, and what it says."""


@dataclass(frozen=True, slots=True)
class VerdictFinding(finding.Finding):
    """A finding of a verdict: its code is one of these."""

    def __post_init__(self) -> None:
        if self.code not in CODES:
            raise ValueError(f"no such finding: {self.code!r}")
