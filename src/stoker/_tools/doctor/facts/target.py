"""What was given to the doctor: a dataset or a loader, with the loader's arguments and where they are written."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class LoaderArguments:
    """One loader's arguments. What a dataset alone does not tell is what was assumed for it."""

    engine: str
    """ "torch" or "stoker"; a subclass counts as what it is derived from."""
    batch_size: int | None
    """None: no automatic batching, or a batch sampler of the user's."""
    num_workers: int
    prefetch_factor: int | None
    persistent_workers: bool
    pin_memory: bool
    drop_last: bool
    timeout_s: float
    in_order: bool
    start_method: str
    """The one that would be used: what was asked for, or the platform's default."""
    sampler: str
    """Name of the sampler's class; "" when there is none (streams)."""
    batch_sampler: str
    shuffle: bool
    """Whether the sampler draws a random order (RandomSampler)."""
    has_set_epoch: bool
    """Whether the sampler, or the batch sampler's, has set_epoch."""
    replicas: int | None
    """``num_replicas`` of a distributed sampler."""
    own_collate: bool
    """Whether ``collate_fn`` is the user's."""
    own_init: bool
    """Whether there is a ``worker_init_fn``."""
    batches: int | None
    """len(loader); None when it has none."""
    samples: int | None
    """How many the sampler gives in an epoch; None when it does not tell."""
    site: str | None
    """Where it was made: "train.py:31"; None if unknown."""
    file: str | None = None
    """The file of ``site``, as a path that can be opened."""
    line: int | None = None
    on_bad_sample: str = "raise"
    """stoker's: "raise", "skip" or "replace"."""
    device: str | None = None
    """stoker's: where it brings batches to, as text."""

    @property
    def window(self) -> int:
        """Batches that torch's loader may have on their way: ``prefetch_factor`` (2 unless said) for each worker."""
        return self.num_workers * (2 if self.prefetch_factor is None else self.prefetch_factor)


@dataclass(frozen=True, slots=True)
class FoundCache:
    """A cache of samples, or of parts of them, that the dataset is or holds."""

    path: str
    """ "dataset", "dataset.loader"."""
    kind: str
    """ "stoker.cache", "stoker.cached", "monai's CacheDataset"."""
    inside: str | None = None
    """The path of the innermost cache around it; None: there is none."""


@dataclass(frozen=True, slots=True)
class TargetFacts:
    """``kind``: "dataset" or "loader"."""

    name: str
    kind: str
    dataset_class: str
    """As one would import it: "data.Pictures"."""
    dataset_file: str | None
    dataset_line: int | None
    stream: bool
    """Whether it is an IterableDataset."""
    length: int | None
    """len(dataset); None when it has none."""
    has_getitems: bool
    loader: LoaderArguments
    """The loader's arguments, or what was assumed: batches of 32 from 2 workers of torch's, unless asked otherwise."""
    assumed: bool
    """Whether ``loader`` is assumed: findings about arguments nobody wrote make no sense then."""
    others: tuple[LoaderArguments, ...] = ()
    """Further loaders, when the target gave several."""
    file: str | None = None
    """The file the target was loaded from; None for a module without one, and for objects."""
    source: str = ""
    """The text of that file, or of the script that calls ``stoker.doctor``; "" when it cannot be read."""
    attributes: dict[str, str] = field(default_factory=dict)
    """Names of the dataset's attributes and the names of their types."""
    caches: tuple[FoundCache, ...] = ()
    """Caches that the dataset is or holds. Containers that fill up while samples are made are in ``GrowthFacts.growing``."""
