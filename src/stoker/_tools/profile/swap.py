"""``stoker run``: replaces every loader of a script by stoker's, whatever name the script knows the class by.

Nothing is renamed. torch's class object gets a ``__new__`` that makes an instance of a class derived from the one that was asked
for and from stoker's DataLoader (``standin``). References that were imported earlier, ``isinstance`` and libraries go on as they
did. What cannot be swapped is torch's, as it would be without us, and a line in the log says so.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

import torch.utils.data

TorchLoader: Any = torch.utils.data.DataLoader


def install() -> None:
    """Swap all loaders that are made in this process from now on. Idempotent."""
    if installed():
        return
    # Never taken back: a class that has lost its __new__ refuses arguments.
    TorchLoader.__new__ = staticmethod(_new)
    TorchLoader.__iter__ = _iter


def installed() -> bool:
    """Whether loaders are swapped in this process."""
    return "__new__" in vars(TorchLoader)


def _new(cls: Any, *args: Any, **kwargs: Any) -> Any:
    """An empty instance, from whatever ``__new__`` comes behind torch's class."""
    from stoker._tools.profile.stand_in import (
        stand_in,  # stoker's loader is imported when the first loader is made
    )

    made = stand_in(cls, kwargs)
    make = super(TorchLoader, made).__new__
    return make(made) if make is object.__new__ else make(made, *args, **kwargs)


# What the constructor takes is what inspect should find: it looks at __new__ before __init__.
_new.__signature__ = inspect.signature(TorchLoader.__init__)  # type: ignore[attr-defined]

torch_iter = TorchLoader.__iter__


@functools.wraps(torch_iter)
def _iter(self: Any) -> Any:
    """For subclasses that call it by torch's name: it keeps persistent workers in its own way."""
    from stoker._tools.profile.stand_in import iterate

    return iterate(self)
