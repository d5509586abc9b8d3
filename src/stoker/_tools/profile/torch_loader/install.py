"""Measuring torch's own DataLoader in a running script, without changing what it does.

``install`` puts hooks (``torch_hooks``) around a few methods of torch's loader and iterators. They call torch's methods with
torch's arguments and note the time: nothing of torch's work is done here. What is noted goes into a run record for each loader
(``torch_account``), the same as that of stoker's own. A torch whose inside looks different gives fewer facts, never an error.
"""

from __future__ import annotations

import atexit
import functools
import os
from collections.abc import Callable
from typing import Any

from torch.utils.data import DataLoader
from torch.utils.data import dataloader as torch_loader
from torch.utils.data._utils import worker as torch_worker

from stoker._tools.profile.torch_loader.hooks import Hooks
from stoker._tools.profile.torch_loader.worker import MeasuredLoop

_Base: Any = torch_loader._BaseDataLoaderIter
_Single: Any = torch_loader._SingleProcessDataLoaderIter
_Multi: Any = torch_loader._MultiProcessingDataLoaderIter
_MISSING = object()


class Instrument:
    """The hooks, and what they replaced."""

    def __init__(self) -> None:
        self.hooks = Hooks(self._meet_loader)
        self._replaced: list[tuple[Any, str, Any, Any]] = []

    def put_in(self) -> None:
        """All hooks that this torch has a place for."""
        hooks = self.hooks
        for owner, name, hook in (
            (DataLoader, "__init__", hooks.init),
            (DataLoader, "_get_iterator", hooks.get_iterator),
            (_Multi, "_reset", hooks.reset),
            (_Multi, "_next_data", hooks.next_data),
            (_Multi, "_process_data", hooks.process_data),
            (_Multi, "_try_put_index", hooks.try_put_index),
            (_Single, "_next_data", hooks.next_data_inline),
            (_Single, "_next_index", hooks.next_index),
            (torch_worker, "_worker_loop", MeasuredLoop),
        ):
            self._replace(owner, name, hook)
        for each in _derived(_Base):
            self._meet(each)
        self._replace(_Base, "__init_subclass__", self._meeting)

    def remove(self) -> None:
        """Put torch's methods back. A hook that somebody has wrapped since stays below, with nothing to watch."""
        for owner, name, ours, theirs in reversed(self._replaced):
            if vars(owner).get(name) is ours:
                if theirs is _MISSING:
                    delattr(owner, name)
                else:
                    setattr(owner, name, theirs)
        self.hooks.close()

    def _replace(self, owner: Any, name: str, hook: Callable[[Any], Any]) -> None:
        theirs = getattr(owner, name, None)
        if theirs is not None:
            ours = hook(theirs)
            if not isinstance(ours, classmethod):
                functools.update_wrapper(ours, theirs)
            self._replaced.append((owner, name, ours, vars(owner).get(name, _MISSING)))
            setattr(owner, name, ours)

    def _meet(self, kind: Any) -> None:
        """A class of iterators that is neither torch's own nor ours: it is timed from outside."""
        if issubclass(kind, (_Single, _Multi)) or kind.__module__.partition(".")[0] == "stoker":
            return
        if "_next_data" in vars(kind):
            for name, hook in (
                ("__init__", self.hooks.init_iterator),
                ("_reset", self.hooks.reset),
                ("_next_data", self.hooks.next_data),
            ):
                if name in vars(kind):
                    self._replace(kind, name, hook)

    def _meet_loader(self, kind: Any) -> None:
        """A class of loaders that makes iterators itself, in place of torch's ``_get_iterator``."""
        for each in kind.__mro__:
            if each is DataLoader or each.__module__.partition(".")[0] == "stoker":
                return
            theirs = vars(each).get("_get_iterator")
            if theirs is not None:
                if not any(ours is theirs for _, _, ours, _ in self._replaced):
                    self._replace(each, "_get_iterator", self.hooks.own_get_iterator)
                return

    def _meeting(self, theirs: Any) -> Any:
        """For classes that are defined later."""

        def hook(kind: Any, /, **kwargs: Any) -> None:
            theirs(**kwargs)
            if self.hooks.plugged:
                self._meet(kind)

        return classmethod(hook)


def _derived(kind: Any) -> list[Any]:
    return [each for direct in kind.__subclasses__() for each in (direct, *_derived(direct))]


_installed: Instrument | None = None


def install() -> None:
    """Measure every loader of torch's that is iterated from now on. Idempotent."""
    global _installed
    if _installed is None:
        instrument = Instrument()
        try:
            instrument.put_in()
        except BaseException:
            instrument.remove()
            raise
        _installed = instrument


def uninstall() -> None:
    """Take the hooks out and close the records. Iterators that are under way go on unmeasured. Idempotent."""
    global _installed
    if _installed is not None:
        instrument, _installed = _installed, None
        instrument.remove()


def _in_child() -> None:
    if _installed is not None:
        _installed.hooks.forget()


atexit.register(uninstall)
os.register_at_fork(after_in_child=_in_child)
