"""Measuring torch's own DataLoader in a running script, without changing what it does.

``install`` puts hooks (``torch_hooks``) around a few methods of torch's loader and iterators. They call torch's methods with
torch's arguments and note the time: nothing of torch's work is done here. What is noted goes into a run record for each loader
(``torch_account``), the same as that of stoker's own. A torch whose inside looks different gives fewer facts, never an error.
"""

from __future__ import annotations

import atexit
import functools
import os
from typing import Any

from torch.utils.data import DataLoader
from torch.utils.data import dataloader as torch_loader
from torch.utils.data._utils import worker as torch_worker

from stoker.measure.torch_hooks import Hooks
from stoker.measure.torch_worker import Loop

_Single: Any = torch_loader._SingleProcessDataLoaderIter
_Multi: Any = torch_loader._MultiProcessingDataLoaderIter
_MISSING = object()


class Instrument:
    """The hooks, and what they replaced."""

    def __init__(self) -> None:
        self.hooks = hooks = Hooks()
        self._replaced: list[tuple[Any, str, Any, Any]] = []
        for owner, name, hook in (
            (DataLoader, "__init__", hooks.init),
            (DataLoader, "_get_iterator", hooks.get_iterator),
            (_Multi, "_reset", hooks.reset),
            (_Multi, "_next_data", hooks.next_data),
            (_Multi, "_process_data", hooks.process_data),
            (_Multi, "_try_put_index", hooks.try_put_index),
            (_Single, "_next_data", hooks.next_data_inline),
            (_Single, "_next_index", hooks.next_index),
            (torch_worker, "_worker_loop", Loop),
        ):
            theirs = getattr(owner, name, None)
            if theirs is not None:
                ours = functools.update_wrapper(hook(theirs), theirs)
                self._replaced.append((owner, name, ours, vars(owner).get(name, _MISSING)))
                setattr(owner, name, ours)

    def remove(self) -> None:
        """Put torch's methods back. A hook that somebody has wrapped since stays below, with nothing to watch."""
        for owner, name, ours, theirs in reversed(self._replaced):
            if vars(owner).get(name) is ours:
                if theirs is _MISSING:
                    delattr(owner, name)
                else:
                    setattr(owner, name, theirs)
        self.hooks.close()


_installed: Instrument | None = None


def install() -> None:
    """Measure every loader of torch's that is iterated from now on. Idempotent."""
    global _installed
    if _installed is None:
        _installed = Instrument()


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
