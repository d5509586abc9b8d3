"""What a batch takes, without workers and with them, and what it is spent on."""

from __future__ import annotations

from dataclasses import dataclass

_CLEARLY = 0.8
"""Without workers a batch has to take less than this part of what it takes with them."""
_DISTURBED = 0.5
"""CPUs that others had, from which on workers are slow because of them."""


@dataclass(frozen=True, slots=True)
class HotFunction:
    """A function in which time goes, and the line of the user's that leads there."""

    function: str
    """ "PIL.Image.Image.resize"; of the user's own code: "Pictures.__getitem__"."""
    caller: str
    """ "data.py:41"; "" when nobody of the user's is on the way."""
    share: float
    """Of the time of making samples."""
    own: bool = False
    """Whether it is the user's own Python code, and not something it calls."""


@dataclass(frozen=True, slots=True)
class SlowIndex:
    """A sample that took much longer than the others, and did so again when it was made once more."""

    index: int
    seconds: float


@dataclass(frozen=True, slots=True)
class SpeedFacts:
    """Seconds are medians, of a batch where nothing else is said. None: not measured."""

    rows: int
    """Of a batch."""
    batches: int
    """How many were made without workers."""
    inline_s: float
    """Fetch and collate, in one process."""
    fetch_s: float
    cpu_s: float
    """CPU time of fetching, of all threads."""
    queued_s: float
    """Of ``fetch_s``: ready to compute, while others had the CPUs."""
    collate_s: float
    batch_bytes: int
    batch_tensors: int
    workers: int
    """How many torch's loader was given for ``loader_s``."""
    loader_s: float | None = None
    """Between two batches of torch's own loader when nothing else is done, the start left out."""
    parent_s: float | None = None
    """CPU time of the training process for a batch of that loader: what no number of workers can hide."""
    share_s: float | None = None
    """What a worker pays to put a batch into shared memory."""
    sample_s: float = 0.0
    """A sample."""
    sampled: int = 0
    """Of how many samples the times are known one by one."""
    slow: tuple[SlowIndex, ...] = ()
    """Stragglers, the slowest first."""
    slow_share: float = 0.0
    """Share of the samples that are."""
    hot: tuple[HotFunction, ...] = ()
    """The largest first."""
    repeatable: bool | None = None
    """Whether a sample made twice was equal: then it could be made once and kept."""
    sample_bytes: int = 0
    length: int | None = None
    usable_cpus: int = 1
    available_bytes: int | None = None
    why_no_loader: str = ""
    """Why ``loader_s`` is None."""
    foreign_cpus: float | None = None
    """CPUs that other processes had while ``loader_s`` was measured; None where the kernel does not tell."""

    @property
    def better_inline(self) -> bool:
        """Whether batches came clearly faster without workers than with them. False where that was not measured."""
        return self.loader_s is not None and self.inline_s < _CLEARLY * self.loader_s

    @property
    def disturbed(self) -> bool:
        """Whether others had the CPUs that workers needed: what a loader takes then says nothing of workers."""
        return self.foreign_cpus is not None and self.foreign_cpus > _DISTURBED

    @property
    def always_inline(self) -> bool:
        """Whether that is so behind any training step: making a batch takes less than taking one that is ready."""
        return self.better_inline and self.parent_s is not None and self.inline_s <= self.parent_s

    @property
    def cpu_share(self) -> float:
        """CPU time over the time of fetching in which it could have had a CPU: near 1 it computes, near 0 it waits."""
        return self.cpu_s / max(self.fetch_s - self.queued_s, 1e-9)
