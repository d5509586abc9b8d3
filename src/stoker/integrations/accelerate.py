"""Hugging Face Accelerate: ``prepare`` builds a stock loader from a loader's attributes; here stoker's takes its place again.

accelerator = stoker.integrations.accelerate.keep(Accelerator())
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
"""

from __future__ import annotations

import functools
import logging
from typing import Any, TypeVar

import torch
from accelerate import data_loader as theirs
from torch.utils.data import DistributedSampler

from stoker.integrations import versions
from stoker.integrations.rebuilt import rebuilt
from stoker.loader import DataLoader

versions.name_untested("accelerate")

_log = logging.getLogger("stoker")
AcceleratorT = TypeVar("AcceleratorT")


def keep(accelerator: AcceleratorT, *, convert: bool = False, **options: Any) -> AcceleratorT:
    """Let an ``Accelerator`` keep the loaders of stoker's that it prepares, with all their arguments. Returns it.

    Accelerate's wrapper stays: device placement, dispatching and splitting of batches, the synchronisation of generators and
    ``skip_first_batches`` work as before, on stoker's engine. ``save_state`` and ``load_state`` include the place in the epoch.
    A loader with ``device=`` brings batches to the device itself; Accelerate then moves none, unless it dispatches them.
    A loader whose sampler is a ``DistributedSampler`` (``ElasticDistributedSampler`` is one) is divided by that alone, not once
    more by Accelerate.

    Args:
        accelerator: The accelerator, before it prepares loaders.
        convert: Whether loaders of torch's become stoker's, too.
        options: Arguments of ``stoker.DataLoader`` for these, in addition to their own or in their place.
    """
    changed: Any = accelerator
    prepare, skip = changed.prepare_data_loader, changed.skip_first_batches
    if isinstance(prepare, functools.partial) and prepare.func is _prepared:
        return accelerator
    changed.prepare_data_loader = functools.partial(_prepared, prepare, convert or bool(options), options)
    changed.skip_first_batches = functools.partial(_skipped, skip)
    return accelerator


def skip_first_batches(dataloader: Any, num_batches: int = 0) -> Any:
    """Accelerate's function of this name. A loader that was kept is stoker's in the loader that it returns, too."""
    return _skipped(theirs.skip_first_batches, dataloader, num_batches)


def _prepared(
    prepare: Any, convert: bool, options: dict[str, Any], data_loader: Any, *args: Any, **kwargs: Any
) -> Any:
    """In the place of ``Accelerator.prepare_data_loader``."""
    prepared = prepare(data_loader, *args, **kwargs)
    if prepared is data_loader or not (convert or isinstance(data_loader, DataLoader)):
        return prepared
    if not isinstance(getattr(prepared, "base_dataloader", None), theirs.DataLoader):
        _log.warning(
            "a loader stays torch's: this version of Accelerate prepares it in another way (%s)",
            type(prepared),
        )
        return prepared
    stock = prepared.base_dataloader
    dispatched = isinstance(prepared, theirs.DataLoaderDispatcher)
    if isinstance(data_loader.sampler, DistributedSampler) and not dispatched:
        stock = data_loader  # divided already
    _put(prepared, rebuilt(stock, data_loader, options))
    return prepared


def _skipped(skip: Any, dataloader: Any, num_batches: int = 0) -> Any:
    """In the place of ``Accelerator.skip_first_batches``: it builds a new loader."""
    resumed = (
        vars(dataloader).pop("_stoker_resumes", None) if hasattr(dataloader, "base_dataloader") else None
    )
    if resumed is not None:
        dataloader.load_state_dict(resumed)
        dataloader.set_epoch = _EpochsCountedOn(dataloader)
        return dataloader
    skipped = skip(dataloader, num_batches)
    like = getattr(dataloader, "base_dataloader", dataloader)
    if isinstance(like, DataLoader) and hasattr(skipped, "base_dataloader"):
        _put(skipped, rebuilt(skipped.base_dataloader, like))
    return skipped


class _EpochsCountedOn:
    """``set_epoch`` of a loader that the Trainer resumes, whose epochs go on from the one that was saved.

    Of data without a length the Trainer does not know how many epochs are over, and counts from 0 again. A dataset that is set to
    another epoch than its state is from ignores the state, and shuffles otherwise.
    """

    def __init__(self, prepared: Any) -> None:
        self._prepared = prepared
        self._over: int | None = None

    def __call__(self, epoch: int) -> None:
        """Called by the Trainer before each epoch, and by Accelerate's wrapper with its own number."""
        prepared = self._prepared
        if self._over is None:
            self._over = prepared.iteration - epoch
        if epoch != prepared.iteration:
            epoch += self._over
        type(prepared).set_epoch(prepared, epoch)


def _put(prepared: Any, loader: DataLoader[Any]) -> None:
    """Let Accelerate's wrapper iterate this loader, and save its state."""
    prepared.base_dataloader = loader
    if loader.device is not None and isinstance(prepared, theirs.DataLoaderShard):
        prepared.device = None  # batches are there already
    sampler = theirs.get_sampler(prepared)
    if isinstance(sampler, theirs.SeedableRandomSampler) and sampler.generator is None:
        # It makes one at its first iter() and seeds it at every one; states before and after that have to be alike.
        sampler.generator = torch.Generator()
    prepared.dl_state_dict = loader.state_dict()
    prepared.use_stateful_dataloader = True
    prepared.state_dict = functools.partial(_state_dict, prepared)
    prepared.load_state_dict = functools.partial(_load_state_dict, prepared)


def _state_dict(prepared: Any) -> dict[str, Any]:
    """The loader's state as of the batch that was handed out last, and the number of the epoch, which Accelerate counts."""
    state = dict(prepared.dl_state_dict)
    finished = state.pop("_iterator_finished", False)
    return {"loader": state, "iteration": getattr(prepared, "iteration", 0) + bool(finished)}


def _load_state_dict(prepared: Any, state: dict[str, Any]) -> None:
    """Let the next ``iter()`` go on where ``_state_dict`` was taken."""
    if not state:
        return
    if "loader" not in state or "iteration" not in state:
        raise ValueError(
            "this is no state of a loader that stoker.integrations.accelerate has kept: it lacks 'loader' and 'iteration'. "
            "Load it without keep()."
        )
    prepared.base_dataloader.load_state_dict(state["loader"])
    prepared.iteration = state["iteration"]
    prepared.dl_state_dict = prepared.base_dataloader.state_dict()
