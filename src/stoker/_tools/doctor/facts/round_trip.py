"""Whether a batch of torch's own loader arrives: with the loader's start method tried out, with the others judged by pickling."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StartMethodTrip:
    """One start method."""

    start_method: str
    tried: bool
    """Whether a worker was started; else only what it would be sent was pickled."""
    outcome: str
    """ "arrived", "changed", "failed", "lost" (the worker is idle, the batch never came), "hung" (the worker is busy with it)."""
    text: str = ""
    """The error as torch or pickle words it, or what the worker printed."""
    stack: str = ""
    """Of a worker that hung: innermost frame last."""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class RoundTripFacts:
    """``own`` is the loader's start method; its trip is the first."""

    own: str
    trips: tuple[StartMethodTrip, ...]
    rows: int = 0
    """Samples in each of the batches that were sent."""
