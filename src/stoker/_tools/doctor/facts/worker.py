"""A worker as torch sets one up, after some samples: what computes in it, and what stays open."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """Forked from the process that has the dataset; the first sample is not counted."""

    samples: int
    wall_s: float
    cpu_s: float
    """Of all its threads."""
    main_cpu_s: float
    """Of the thread that makes the samples."""
    threads_started: int
    """Native threads that making samples started and that live on, beside those of Python's ``threading``."""
    python_threads: tuple[str, ...] = ()
    """Names of Python threads that making samples started."""
    pools: dict[str, int] = field(default_factory=dict)
    """Threads that each native library would use here: "openblas", "libgomp", "cv2", "numexpr", "tokenizers", "torch"."""
    computing: str = ""
    """The library whose threads computed beside the main one: held to one thread, it did not any more. "" for none, or unknown."""
    descriptors: int = 0
    """Open at the end."""
    descriptors_per_sample: float = 0.0
    """By how many they grow with a sample, if they do so in the second half as in the first; else 0."""
    left_open: tuple[str, ...] = ()
    """What they are, some of them: names of files."""
    private_bytes: int | None = None
    usable_cpus: int = 1
    """Of one rank."""
    ranks: int = 1
    variables: dict[str, str] = field(default_factory=dict)
    """OMP_NUM_THREADS and the like, where they are set."""

    @property
    def beside(self) -> float:
        """CPU time of other threads over that of the thread that makes the samples."""
        return max(0.0, self.cpu_s - self.main_cpu_s) / max(self.main_cpu_s, 1e-9)
