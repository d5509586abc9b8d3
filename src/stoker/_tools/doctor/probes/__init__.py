"""Probes find facts by trying: one module per fact, ``probe(subject)``, which runs in a child process with limits.

A probe may hang, crash, or eat memory with the dataset it tries: the child pays for it, and the fact is then what happened.
It keeps to a soft budget of its own (1.5 s is typical), calls ``subject.sample(index)`` or ``subject.touch(index)`` so that
the index is known should it not come back, and leaves no process and no file behind. What it prints is kept from the
terminal.
"""

from __future__ import annotations

from dataclasses import dataclass

from stoker._tools.sandbox.outcome import FactUnavailable as FactUnavailable


@dataclass(frozen=True, slots=True)
class Plan:
    """How a fact is gathered. The module has the fact's name and lies in this package."""

    name: str
    limit_s: float = 15.0
    """What it is given at most: five times what it should need and more, because a limit that strikes is told as a hang."""
    samples: bool = True
    """Whether it makes samples, so that it may hang falsely in a fork of a process with threads that forks do not copy."""


PLANS = (
    Plan("target", samples=False),
    Plan("scan", samples=False),
    Plan("pinning", samples=False),
    Plan("paths", samples=False),
    Plan("samples", 10.0),
    Plan("worker"),
    Plan("speed", 20.0),
    Plan("sampler"),
    Plan("stream"),
    Plan("randomness"),
    Plan("round_trip", 20.0),
    Plan("growth", 20.0),
)
"""In the order in which they run: what is cheap first, what wears the machine out last. A new probe is a line here."""
