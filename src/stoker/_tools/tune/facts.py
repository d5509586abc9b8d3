"""What probes of the tuner tell: plain values."""

from __future__ import annotations

from dataclasses import dataclass

from stoker._runtime.simulation.setting import Setting


@dataclass(frozen=True, slots=True)
class Target:
    """What is to be tuned, as it is now: the loader's own setting, and what bounds a choice.

    Of a dataset without a loader: ``setting`` is no workers, ``batch_size`` what was asked for or is assumed.
    """

    name: str
    loader: bool
    """Whether there is one; else a dataset was given."""
    setting: Setting
    batch_size: int | None
    """None: the loader does not batch, or by a batch sampler of the user's."""
    batches: int | None
    """In an epoch; None when it does not tell."""
    stream: bool
    """Whether the dataset is iterated, not indexed: each worker has a stream of its own."""
    asks_worker: bool = True
    """Of a stream: whether its code asks which worker it is in. If it does not, every worker reads all of it."""
    in_order: bool = True
    own_collate: bool = False
    hazards: tuple[str, ...] = ()
    """Libraries with threads in this process that a fork does not survive."""
    daemonic: bool = False
    """Whether this process may have no children."""
    site: str | None = None
    """Where the loader was made: "train.py:31"."""
    file: str | None = None
    """The file of ``site``, or that the target was loaded from, as a path that can be opened."""
    others: int = 0
    """Further loaders that the target gave."""
    line: int | None = None
    """Of ``site``."""
    key: str = ""
    """Of the dataset (``_record/dataset_identity.py``), as it was before a sample was made."""
    dataset_class: str = ""
    written: tuple[tuple[str, str], ...] = ()
    """Arguments of the loader that a setting may change, as one would write what they are now: ("num_workers", "4")."""


@dataclass(frozen=True, slots=True)
class Likeness:
    """Whether two engines give the same batches. ``alike`` is None where it cannot be told; ``text`` says why, or what differs."""

    alike: bool | None
    batches: int
    text: str
