"""Outcomes of probes other than a fact."""

from __future__ import annotations

from dataclasses import dataclass


class FactUnavailable(Exception):
    """Raised by a probe: the fact cannot be had, for the reason that the text says; ``stack`` is the user's, if it is theirs."""

    def __init__(self, text: str = "", stack: str = "") -> None:
        super().__init__(text)
        self.stack = stack


@dataclass(frozen=True, slots=True)
class ProbeFailure:
    """What ended a probe from outside. ``what``: "hung", "died", "ate memory"."""

    what: str
    index: int | None
    """The sample it was on; None when that is not known."""
    text: str
    """ "no answer for 10 s", "killed by SIGSEGV", "4.1 GiB of the 4 GiB it may take"."""
    stack: str = ""
    lacking: tuple[str, ...] = ()
    """Python threads that were not there because it ran in a fork, where it came back with them, or nobody could try."""
