"""Ray Train: ``prepare_data_loader`` rebuilds a loader as torch's to give it a sampler; here it stays stoker's.

loader = stoker.integrations.ray.prepare_data_loader(loader)
"""

from __future__ import annotations

import copy
import weakref
from typing import Any

import ray.train
from ray.train.torch import prepare_data_loader as theirs
from torch.utils.data import BatchSampler, DistributedSampler, IterableDataset, SequentialSampler

from stoker.integrations import versions
from stoker.loader import DataLoader

versions.name_untested("ray")


def prepare_data_loader(
    data_loader: DataLoader[Any],
    add_dist_sampler: bool = True,
    move_to_device: bool = True,
    auto_transfer: bool = True,
) -> Any:
    """Ray Train's function of this name, for a loader of stoker's: it keeps its class and all its arguments.

    With several Ray workers the loader gets torch's ``DistributedSampler``, shuffled unless the loader's order was sequential.
    Call its ``set_epoch`` in every epoch, as with Ray. A loader that has one, such as ``ElasticDistributedSampler``, keeps it.
    What is returned has ``state_dict`` and ``load_state_dict``. They count the batch that Ray takes ahead as not taken.
    A loader with ``device=`` brings batches to the device itself; Ray then copies nothing.

    Args:
        data_loader: The loader.
        add_dist_sampler: Whether samples are divided among the workers.
        move_to_device: Whether Ray moves batches to the worker's device.
        auto_transfer: Whether Ray does so ahead, on a stream of its own.
    """
    workers = ray.train.get_context().get_world_size()
    divided = isinstance(data_loader.sampler, DistributedSampler) or isinstance(
        data_loader.dataset, IterableDataset
    )
    if add_dist_sampler and workers > 1 and not divided:
        data_loader = _divided(data_loader)
    if getattr(data_loader, "device", None) is not None:
        move_to_device = False
    prepared = theirs(
        data_loader, add_dist_sampler=False, move_to_device=move_to_device, auto_transfer=auto_transfer
    )
    if prepared is not data_loader:
        _HandedOut(prepared, data_loader)
    return prepared


class _HandedOut:
    """The state of a loader below Ray's wrapper, which takes one batch ahead: as of the batch that the loop has."""

    def __init__(self, wrapper: Any, loader: DataLoader[Any]) -> None:
        self._loader, self._wrapper = loader, weakref.ref(wrapper)
        self._ahead: Any = getattr(type(wrapper), "_prefetch_next_batch", None)
        self._state: dict[str, Any] | None = None
        if self._ahead is not None:
            wrapper._prefetch_next_batch = self._take_ahead
        wrapper.state_dict, wrapper.load_state_dict = self.state_dict, self.load_state_dict

    def state_dict(self) -> dict[str, Any]:
        return self._loader.state_dict() if self._state is None else self._state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._loader.load_state_dict(state)
        self._state = None

    def _take_ahead(self) -> None:
        wrapper = self._wrapper()
        self._state = self._loader.state_dict()
        self._ahead(wrapper)
        if wrapper is not None and wrapper.next_batch is None:
            self._state = None  # the epoch is over


def _divided(loader: DataLoader[Any]) -> DataLoader[Any]:
    """A copy whose sampler gives this worker its samples."""
    if loader.batch_sampler is not None and type(loader.batch_sampler) is not BatchSampler:
        raise ValueError(
            "a batch_sampler of one's own cannot be divided among Ray's workers: let it divide the samples itself "
            "(ray.train.get_context().get_world_rank()) and pass add_dist_sampler=False."
        )
    dataset: Any = loader.dataset
    sampler: Any = DistributedSampler(
        dataset,
        num_replicas=ray.train.get_context().get_world_size(),
        rank=ray.train.get_context().get_world_rank(),
        shuffle=not isinstance(loader.sampler, SequentialSampler),
    )
    made = copy.copy(loader)
    vars(made)["sampler"] = sampler
    if loader.batch_size is not None:
        vars(made)["batch_sampler"] = BatchSampler(sampler, loader.batch_size, loader.drop_last)
    return made
