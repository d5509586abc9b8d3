"""What a finding is: the form in which stoker says that something should be changed. Codes are stable: other tools go by them."""

from __future__ import annotations

from dataclasses import dataclass

CODES = {
    "not-data": "the loader is not what limits this run",
    "more-workers": "more workers would make batches fast enough, or faster",
    "fewer-workers": "more workers than CPUs that they could use",
    "threads-per-worker": "workers compute with several threads each, more than there are CPUs",
    "cheaper-samples": "all CPUs are at work: a sample has to cost less",
    "slow-reads": "samples wait for storage, network, a lock or a sleep, and more workers would not help",
    "use-threads": "workers that only wait can be threads",
    "use-processes": "threads hold each other up at the interpreter's lock",
    "memory-bandwidth": "workers wait for memory",
    "cpu-quota": "the cgroup's quota is used up",
    "cpu-neighbours": "other processes have the CPUs",
    "dying-workers": "workers died while they were waited for",
    "slow-worker": "one worker takes much longer than the others",
    "slow-samples": "few samples take much longer than the others",
    "deeper-window": "batches are made too few ahead for how much their times differ",
    "any-order": "finished batches wait for an earlier one",
    "slow-sampler": "the sampler, in the training process, is slow",
    "heavy-batches": "opening a batch takes the training process long",
    "slow-pinning": "copying into pinned memory takes long",
    "late-wake": "the training process hears of finished batches late",
    "persistent-workers": "workers are started anew at every epoch",
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


def duration(seconds: float) -> str:
    """As one reads it: "0.25 ms", "1.19 s"."""
    return (
        f"{seconds * 1000:.3g} ms"
        if seconds < 0.9995
        else f"{seconds:.3g} s"
        if seconds < 999
        else f"{seconds:,.0f} s"
    )


def counted(number: int, noun: str, nouns: str | None = None) -> str:
    """ "1 worker", "2 workers", "3 batches"."""
    return f"{number} {noun if number == 1 else nouns or noun + 's'}"


@dataclass(frozen=True, slots=True)
class Edit:
    """A change as it would be typed: ``before`` (None: nothing is there yet) becomes ``after`` at ``site``."""

    after: str
    before: str | None = None
    site: str | None = None

    def __str__(self) -> str:
        text = self.after if self.before is None else f"{self.before}  →  {self.after}"
        return f"{text}   in {self.site}" if self.site else text


@dataclass(frozen=True, slots=True)
class Gain:
    """What a change would save, in shares of the time of a step as it is now; None: nobody can know. ``how`` says from what."""

    share: float | None
    how: str
    at_most: bool = False
    """Whether ``share`` is a bound rather than an expectation."""

    def __str__(self) -> str:
        if self.share is None:
            return "gain not known"
        return f"{'at most ' if self.at_most else 'about '}−{self.share:.0%} of the step's time"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to change. ``severity``: none, low, moderate, high."""

    code: str
    severity: str
    evidence: str
    advice: str
    edit: Edit | None = None
    gain: Gain | None = None

    def __post_init__(self) -> None:
        if self.code not in CODES:
            raise ValueError(f"no such finding: {self.code!r}")
