"""A batch as a short text: equal batches have equal ones."""

from __future__ import annotations

import hashlib
import pickle
from typing import Any


class NotComparable(Exception):
    """Something in a batch has no value to compare."""


def digest(batch: Any) -> str:
    """Kinds, shapes and bytes of all that is in it. Raises NotComparable."""
    seen = hashlib.blake2b(digest_size=16)
    _feed(seen, batch)
    return seen.hexdigest()


def _feed(seen: Any, value: Any) -> None:
    import numpy as np
    import torch

    if isinstance(value, torch.Tensor):
        if value.layout != torch.strided or value.is_quantized:
            raise NotComparable(f"a tensor of layout {value.layout}")
        seen.update(f"tensor {value.dtype} {tuple(value.shape)}".encode())
        seen.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    elif isinstance(value, np.ndarray) and value.dtype != object:
        seen.update(f"array {value.dtype} {value.shape}".encode())
        seen.update(np.ascontiguousarray(value).tobytes())
    elif isinstance(value, dict):
        seen.update(f"dict {len(value)}".encode())
        for key, each in value.items():
            seen.update(repr(key).encode())
            _feed(seen, each)
    elif isinstance(value, list | tuple):
        seen.update(f"{type(value).__name__} {len(value)}".encode())
        for each in value:
            _feed(seen, each)
    elif value is None or isinstance(value, str | bytes | int | float | bool | complex):
        seen.update(f"{type(value).__name__} {value!r}".encode())
    else:
        try:
            seen.update(pickle.dumps(value, protocol=5))
        except Exception:
            raise NotComparable(f"a {type(value).__name__}") from None
