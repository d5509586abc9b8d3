"""The accelerator, if the user's code uses one: asked without initialising it."""

from __future__ import annotations

import os
from typing import Any

_BY_DRIVER = "PYTORCH_NVML_BASED_CUDA_CHECK"


def kind() -> str | None:
    """Return "cuda", "xpu", "mps"... or None without an accelerator. Asks drivers and creates no context."""
    import torch

    before = os.environ.get(_BY_DRIVER)
    os.environ[_BY_DRIVER] = "1"  # the runtime's own count may leave something that a fork does not survive
    try:
        if torch.accelerator.is_available():
            found = torch.accelerator.current_accelerator()
            return None if found is None else str(found.type)
    except Exception:  # a driver that is half there
        return None
    finally:
        os.environ.pop(_BY_DRIVER)
        if before is not None:
            os.environ[_BY_DRIVER] = before
    return None


def settle() -> None:
    """Wait until it has done all it was given. Nothing where none was used: that would initialise it."""
    import torch

    backend: Any = getattr(torch, in_use() or "", None)
    if backend is not None:
        backend.synchronize()


def in_use() -> str | None:
    """The kind of the one that this process has initialised; None: it has not. Asking does not initialise it."""
    import torch

    for name in ("cuda", "xpu", "mps", "npu"):
        asked = getattr(getattr(torch, name, None), "is_initialized", None)
        try:
            if asked is not None and asked():
                return name
        except Exception:  # a driver that is half there
            continue
    return None
