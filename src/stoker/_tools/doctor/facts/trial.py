"""What came of one trial of ``--bisect``: a loader with one thing changed, over a few batches."""

from __future__ import annotations

from dataclasses import dataclass

from stoker._host.secrets import masked


@dataclass(frozen=True, slots=True)
class BisectionOutcome:
    """``what``: "ok", "error", "hang", "killed" or "memory". Secrets in the texts are hidden."""

    what: str
    batches: int = 0
    seconds: float = 0.0
    text: str = ""
    """The exception with its traceback, or what ended it."""
    stack: str = ""
    """Where it hung or died, in the user's files, as far as that is known."""
    printed: str = ""
    """What came out on the terminal meanwhile: a thread of torch's that fails says so only there."""

    def __post_init__(self) -> None:
        for name in ("text", "stack", "printed"):
            object.__setattr__(self, name, masked(getattr(self, name)))

    @property
    def ok(self) -> bool:
        return self.what == "ok"


@dataclass(frozen=True, slots=True)
class BisectionBaseline:
    """The loader as it is: what a trial can leave out or change."""

    workers: int
    method: str
    """The start method it would use."""
    methods: tuple[str, ...]
    """All start methods of this platform."""
    parts: tuple[str, ...]
    """What can be left out: "dataset.transform", "collate_fn", "pin_memory", ..."""
    engine: str = "torch"
    """Whose loader it is: "torch" or "stoker"."""

    @property
    def other(self) -> str:
        """The engine that it is compared with."""
        return "torch" if self.engine == "stoker" else "stoker"
