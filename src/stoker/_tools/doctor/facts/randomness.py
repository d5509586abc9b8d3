"""The same samples, made several times in two workers and two epochs of torch's: which of them are equal."""

from __future__ import annotations

from dataclasses import dataclass

from stoker._tools.probes.random_source import RandomSource


@dataclass(frozen=True, slots=True)
class RandomnessFacts:
    """Each sample was made ``times`` times in each of two workers in each of two epochs, seeded as torch seeds them.

    A series is what one worker got for one index, in order.
    """

    indices: tuple[int | str, ...]
    """What is no number is told as text. Of a stream: (0,), its first items."""
    times: int
    persistent: bool
    """Whether the workers of the second epoch were those of the first."""
    varies: bool
    """Whether a sample changed within a worker at all. The rest is told of those that did."""
    workers_equal: bool
    """Whether both workers got the same series, in both epochs."""
    epochs_equal: bool
    """Whether the workers got the same series in the second epoch as in the first."""
    reproducible: bool
    """Whether a worker with the same number and seed got the same series again."""
    sources: tuple[RandomSource, ...] = ()
    own_init: bool = False
    """Whether the loader has a ``worker_init_fn``; it was run."""
    frozen: tuple[int | str, ...] = ()
    """Samples that never changed within a worker, yet differ between workers or epochs, that is between seeds."""

    @property
    def verdict(self) -> str:
        """ "deterministic" (never varies), "repeated" (varies within a worker, yet in all workers or all epochs alike),
        "unseeded" (no seed brings the numbers back) or "healthy"."""
        if not self.varies:
            return "deterministic"
        if self.workers_equal or self.epochs_equal:
            return "repeated"
        return "healthy" if self.reproducible else "unseeded"
