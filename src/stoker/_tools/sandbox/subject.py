"""The subject of an examination: a dataset and its loader, live, in the process in which probes run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

ASSUMED_BATCH = 32
ASSUMED_WORKERS = 2


def _nothing(index: Any) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Subject:
    """Made where the target was loaded; never travels. Facts about it do."""

    dataset: Any
    loader: Any = None
    """A DataLoader of torch's or ours; None when a dataset was given."""
    others: tuple[Any, ...] = ()
    """Further loaders, when the target gave several: the one for validation, say."""
    arguments: dict[str, Any] = field(default_factory=dict)
    """The ``examined`` arguments as the loader has them, or the values to assume for a dataset."""
    name: str = "dataset"
    """What it is called in messages: "data.py:train"."""
    file: str | None = None
    """The file the target was loaded from, or of the script that calls ``stoker.doctor``."""
    avoid: frozenset[int] = frozenset()
    """Indices that hung or killed an earlier probe. ``indices`` leaves them out."""
    touch: Callable[[Any], None] = _nothing
    """Reports the index that is worked on now, None when unknown. A hang or a death is then reported with this index.
    Costs a microsecond."""
    trial: Mapping[str, Any] = field(default_factory=dict)
    """What the probe is asked to try: plain values, from the other side."""
    kept: dict[str, Any] = field(default_factory=dict)
    """What a probe leaves for later ones in the same process: pools that stay alive. Empty in every fork."""

    def sample(self, index: int) -> Any:
        """The sample at an index of the dataset. The doctor knows which it is, should it never come back."""
        self.touch(index)
        return self.dataset[index]

    def indices(self) -> Iterator[Any]:
        """Indices in the sampler's order, without those to avoid; drawn as they are asked for.

        The user's sampler runs here, and may raise. For streams there are none. Where the loader does not batch, an index is
        whatever the sampler gives, a list too.
        """
        batched = (
            self.arguments.get("batch_size") is not None or self.arguments.get("batch_sampler") is not None
        )
        for batch in self.batches():
            yield from batch if batched else (batch,)

    def batches(self) -> Iterator[Any]:
        """Batches of indices as the loader would ask for them; single indices where it does not batch."""
        batch_sampler, sampler = self.arguments.get("batch_sampler"), self.arguments.get("sampler")
        if self.is_stream:
            return
        if batch_sampler is not None:
            for batch in batch_sampler:
                kept = [index for index in batch if not self._avoided(index)]
                if kept:
                    yield kept
            return
        if sampler is None:
            sampler = range(len(self.dataset))
        drawn = (index for index in sampler if not self._avoided(index))
        size = self.arguments.get("batch_size")
        if size is None:
            yield from drawn
            return
        while batch := list(islice(drawn, size)):
            yield batch

    @property
    def is_stream(self) -> bool:
        """Whether it is iterated, not indexed."""
        from torch.utils.data import IterableDataset

        return isinstance(self.dataset, IterableDataset)

    def _avoided(self, index: Any) -> bool:
        return bool(self.avoid) and not isinstance(index, list) and index in self.avoid
