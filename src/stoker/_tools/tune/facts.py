"""The facts that the tuner's probes report: plain values."""

from __future__ import annotations

from dataclasses import dataclass

from stoker._runtime.simulation.setting import Setting


@dataclass(frozen=True, slots=True)
class Target:
    """The target as it is now: the loader's own setting, and the limits of a choice.

    For a dataset without a loader, ``setting`` has no workers, and ``batch_size`` is the requested or assumed one.
    """

    name: str
    loader: bool
    """True for a loader, False for a dataset."""
    setting: Setting
    batch_size: int | None
    """None: the loader does not batch, or the user's batch sampler does."""
    batches: int | None
    """Batches in an epoch; None if unknown."""
    stream: bool
    """Whether the dataset is iterated, not indexed: each worker has its own stream."""
    asks_worker: bool = True
    """For a stream: whether its code asks which worker it is in. If it does not, every worker reads all of it."""
    in_order: bool = True
    own_collate: bool = False
    hazards: tuple[str, ...] = ()
    """Libraries with threads in this process that do not survive a fork."""
    daemonic: bool = False
    """Whether this process may have no children."""
    site: str | None = None
    """The place where the loader is made: "train.py:31"."""
    file: str | None = None
    """The file of ``site``, or the file that the target was loaded from, as a path that can be opened."""
    others: int = 0
    """The number of further loaders of the target."""
    line: int | None = None
    """The line of ``site``."""
    samples: int | None = None
    """The dataset's length; None for streams."""
    key: str = ""
    """The dataset's key (``_record/dataset_identity.py``), taken before a sample was made."""
    dataset_class: str = ""
    imported: str | None = None
    """Where the file of ``site`` imports DataLoader by its name: "train.py:3". None: it does not, or the file is unknown."""
    kept: tuple[str, ...] = ()
    """The loader's arguments that no setting changes, as one would type them: "shuffle=True"."""
    written: tuple[tuple[str, str], ...] = ()
    """The loader's current arguments that a setting may change, as one would type them: ("num_workers", "4")."""


@dataclass(frozen=True, slots=True)
class ThreadSafety:
    """Whether threads that use the dataset at the same time leave batches as they are. ``safe`` is None if nothing shows it.

    ``text`` says why, or what differs.
    """

    safe: bool | None
    text: str


@dataclass(frozen=True, slots=True)
class Likeness:
    """Whether two engines give the same batches. ``alike`` is None if unknown; ``text`` says why, or what differs."""

    alike: bool | None
    batches: int
    text: str
