"""Maps torch dtypes to small integers, and to numpy dtypes of the same bytes."""

from __future__ import annotations

import numpy as np
import torch


def _all_dtypes() -> list[torch.dtype]:
    """Every dtype of this torch build in a stable order; writer and reader run the same build."""
    found = {value for value in vars(torch).values() if isinstance(value, torch.dtype)}
    return sorted(found, key=str)


DTYPES: tuple[torch.dtype, ...] = tuple(_all_dtypes())
CODE: dict[torch.dtype, int] = {dtype: code for code, dtype in enumerate(DTYPES)}
ITEM_BYTES: tuple[int, ...] = tuple(dtype.itemsize for dtype in DTYPES)


def _native(dtype: torch.dtype) -> np.dtype[np.generic] | None:
    """The numpy dtype that ``torch.from_numpy`` turns into exactly ``dtype``, or None."""
    try:
        native = np.dtype(str(dtype).removeprefix("torch."))
        return native if torch.from_numpy(np.empty(0, native)).dtype is dtype else None
    except TypeError:
        return None


NUMPY: tuple[np.dtype[np.generic] | None, ...] = tuple(map(_native, DTYPES))
"""By code; None where numpy lacks the dtype (bfloat16, float8, complex32, quantised ones)."""

NATIVE_CODE: dict[torch.dtype, int] = {dtype: code for dtype, code in CODE.items() if NUMPY[code] is not None}

_BY_BYTES = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}


def carrier(dtype: torch.dtype) -> torch.dtype:
    """A dtype of the same width that numpy knows: it carries the bits of ``dtype`` through a numpy buffer."""
    return dtype if NUMPY[CODE[dtype]] is not None else _BY_BYTES[dtype.itemsize]
