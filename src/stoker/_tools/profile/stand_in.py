"""Puts stoker's DataLoader in the place of torch's, with a careful base for subclasses of torch's.

A subclass is not replaced. Where it has torch's DataLoader for a base it gets ``StandIn``, stoker's DataLoader, which is one
too: its name, its overrides, its pickles and what it keeps on the class stay, and ``super()`` reaches stoker.
"""

from __future__ import annotations

import inspect
from multiprocessing.process import BaseProcess
from typing import Any

from torch.utils.data import dataloader as torch_loader

from stoker import arguments
from stoker._tools.profile.left_to_torch import leave
from stoker._tools.profile.swap import TorchLoader, torch_iter
from stoker.loader import DataLoader

_OWN_ENGINES = ("torchdata",)
"""Packages whose loaders bring an engine of their own."""

_THEIRS = inspect.signature(TorchLoader.__init__)

_ARGUMENTS = {each.name: each.default for each in arguments.OWN}
"""stoker's own arguments, each an attribute of the same name, and their defaults."""

_OURS = {*_ARGUMENTS, *(each for each in vars(DataLoader) if each[0] == "_" != each[1])} - set(
    dir(TorchLoader)
)
"""Names that stoker's engine goes by."""

_Single: Any = torch_loader._SingleProcessDataLoaderIter
_Multi: Any = torch_loader._MultiProcessingDataLoaderIter

_NO_PROCESSES = "its multiprocessing_context starts no processes"


def stand_in(cls: Any, kwargs: dict[str, Any]) -> Any:
    """The class to make where ``cls``, torch's loader or a subclass, is called with these keyword arguments."""
    if cls is TorchLoader:
        foreign = [name for name in kwargs if name not in arguments.BY_NAME]
        if foreign and set(foreign) <= set(inspect.signature(cls.__init__).parameters):
            leave(cls, f"stoker's does not know the argument {foreign[0]!r}")
            return cls
        if _without_processes(kwargs.get("multiprocessing_context")):
            leave(cls, _NO_PROCESSES)
            return cls
        return DataLoader
    if not issubclass(cls, DataLoader):
        _graft(cls)
    return cls


def _graft(cls: Any) -> None:
    """Put ``StandIn`` below a subclass of torch's loader, and below the classes that it has in common with others."""
    family = [each for each in cls.__mro__ if issubclass(each, TorchLoader)]
    if any(each.__module__.split(".")[0] in _OWN_ENGINES for each in family):
        leave(cls, "it has an engine of its own")
        return
    for each in family:
        if TorchLoader in each.__bases__:
            bases = tuple(StandIn if base is TorchLoader else base for base in each.__bases__)
            try:
                each.__bases__ = bases
            except TypeError as error:
                leave(cls, str(error))
                return


def iterate(loader: Any) -> Any:
    """What torch's ``__iter__`` is for a loader that is stoker's, or torch's after all."""
    if isinstance(loader, StandIn):
        return StandIn.__iter__(loader)
    return DataLoader.__iter__(loader) if isinstance(loader, DataLoader) else torch_iter(loader)


class StandIn(DataLoader[Any]):
    """stoker's DataLoader as a base of classes that were written for torch's, and may use its names for things of their own.

    Such a loader is torch's: its attributes are left alone and torch iterates it.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if _taken(type(self)):
            TorchLoader.__init__(self, *args, **kwargs)
            return
        before = {name: value for name, value in vars(self).items() if name in _ARGUMENTS}
        super().__init__(*args, **kwargs)
        vars(self).update(before)

    def __iter__(self) -> Any:
        if not self._is_ours():
            return torch_iter(self)
        iterator = super().__iter__()
        if isinstance(iterator, (_Single, _Multi)):
            leave(type(self), "it makes torch's iterators itself")
        return iterator

    def _get_iterator(self) -> Any:
        return super()._get_iterator() if self._is_ours() else TorchLoader._get_iterator(self)

    def _is_ours(self) -> bool:
        taken = _taken(type(self)) or next(
            (name for name, default in _ARGUMENTS.items() if not _fits(name, getattr(self, name), default)),
            None,
        )
        if taken is not None:
            leave(type(self), f"it has a {taken!r} of its own, and stoker's means something else")
        elif _without_processes(self.multiprocessing_context):
            leave(type(self), _NO_PROCESSES)
            return False
        return taken is None


StandIn.__init__.__signature__ = _THEIRS  # type: ignore[attr-defined]  # what a subclass without its own is seen to take
for _name, _default in _ARGUMENTS.items():  # for a subclass that calls torch's __init__ by name, past ours
    setattr(StandIn, _name, _default)


def _fits(name: str, value: Any, default: Any) -> bool:
    """Whether an attribute is as stoker left it, or cannot do harm."""
    return value is default or (name == "name" and isinstance(value, str))


def _without_processes(context: Any) -> bool:
    """Whether a multiprocessing context makes something else in the place of processes: MONAI's has threads."""
    kind = getattr(context, "Process", None)
    return isinstance(kind, type) and not issubclass(kind, BaseProcess)


def _taken(cls: type) -> str | None:
    """A name of stoker's engine that a class, or one that it shares with others, defines for itself."""
    found = (vars(each).keys() & _OURS for each in cls.__mro__[: cls.__mro__.index(StandIn)])
    return min((name for names in found for name in names), default=None)
