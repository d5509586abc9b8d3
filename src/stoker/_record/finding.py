"""Defines a finding: how stoker says that something should change. Codes are stable, because other tools rely on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from stoker._host.secrets import masked, masked_values

SEVERITIES = ("none", "low", "moderate", "high")
"""From "worth knowing" to "this breaks, or wastes most of the run"."""


def duration(seconds: float) -> str:
    """As one reads it: "0.25 ms", "1.19 s"."""
    return (
        f"{seconds * 1000:.3g} ms"
        if seconds < 0.9995
        else f"{seconds:.3g} s"
        if seconds < 999
        else f"{seconds:,.0f} s"
    )


def size(nbytes: float) -> str:
    """As one reads it: "40 bytes", "1.5 MiB", "64 GiB"."""
    for unit, scale in (("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)):
        amount = nbytes / (1 << scale)
        if amount >= 0.9995:
            return f"{amount:.0f} {unit}" if amount >= 99.95 else f"{amount:.3g} {unit}"
    return f"{nbytes:.0f} bytes"


def counted(number: int, noun: str, nouns: str | None = None) -> str:
    """ "1 worker", "2 workers", "3 batches"."""
    return f"{number} {noun if number == 1 else nouns or noun + 's'}"


def cut(text: str, longest: int) -> str:
    """At most so many characters, the last of them "…" where some were left out."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def capitalised(text: str) -> str:
    """With a capital at its beginning, and all else as it is."""
    return text[:1].upper() + text[1:]


EDITS = {
    "": "whatever ``after`` looks like: one of the kinds below, else only shown",
    "argument": 'the loader\'s call at ``site`` gets ``after`` ("pin_memory=False"), or loses ``before`` when ``after`` is ""',
    "share": 'the loader\'s dataset at ``site`` is wrapped: "stoker.share(dataset)"',
    "cache": """the same with a cache: 'stoker.cache(dataset, budget="8GiB")'""",
    "environment": """above the file's imports: 'os.environ.setdefault("OMP_NUM_THREADS", "1")'""",
    "init": """statements that every worker runs first, one a line: "cv2.setNumThreads(0)"; they become a worker_init_fn""",
    "import": '"from stoker import DataLoader" instead of torch\'s',
    "guard": """the script's last statements go under 'if __name__ == "__main__":'""",
    "shown": "nothing that could be typed into the file: a command, or a change inside the dataset",
}
"""Kinds of edits, and what ``after`` holds. All but "" and "shown" can be made by ``stoker doctor --fix``."""


@dataclass(frozen=True, slots=True)
class Edit:
    """A change as it would be typed: ``before`` (None: nothing is there yet) becomes ``after`` at ``site``."""

    after: str
    before: str | None = None
    site: str | None = None
    """ "train.py:31": where the loader is made (``Loader.site``), else the file that was examined."""
    kind: str = ""
    """One of EDITS."""

    def __post_init__(self) -> None:
        if self.kind not in EDITS:
            raise ValueError(f"no such kind of edit: {self.kind!r}")
        if self.kind == "shown":  # it is typed into no file, and may quote the user's own code
            object.__setattr__(self, "after", masked(self.after))
            object.__setattr__(self, "before", self.before and masked(self.before))

    def __str__(self) -> str:
        text = self.after if self.before is None else f"{self.before}  →  {self.after or '(left out)'}"
        return masked(f"{text}   in {self.site}" if self.site else text)


@dataclass(frozen=True, slots=True)
class Gain:
    """What a change would save, as a share of the present time of a step; None: unknown. ``how`` says how it was computed."""

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
    """One thing to change. ``severity`` is one of SEVERITIES.

    Its texts quote errors and names of other people's code: secrets in them are hidden when it is made, so that no form shows
    them. An ``edit`` that is typed into a file stays as it is; its text hides them.
    """

    code: str
    severity: str
    evidence: str
    advice: str
    edit: Edit | None = None
    gain: Gain | None = None
    where: str | None = None
    """What it is about, as one would write it: ``dataset.reader.handle``, ``sample[3]['mask']``, ``TMPDIR``."""
    numbers: Mapping[str, float | int | str | None] = field(default_factory=dict)
    """The evidence, for programs."""

    def __post_init__(self) -> None:
        if self.severity not in SEVERITIES:
            raise ValueError(f"no such severity: {self.severity!r}")
        for name in ("evidence", "advice", "where"):
            text = getattr(self, name)
            object.__setattr__(self, name, text and masked(text))
        object.__setattr__(self, "numbers", masked_values(self.numbers))
