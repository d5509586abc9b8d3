"""The codec over ordinary bytes, for executors that share no memory with their workers.

    [data regions][root][offset of the root, 8 bytes]

Stateless; any thread. Both ends must run the same builds of Python, torch and stoker.
"""

from __future__ import annotations

import ctypes
from typing import Any

from stoker._runtime.transport.codec import decode, encode

_OFFSET_BYTES = 8


def dumps(obj: object) -> bytes:
    """Encode ``obj``. Raises UnsendableError naming what cannot be pickled."""
    encoded = encode(obj, 0, ())
    start, end = encoded.end, encoded.end + len(encoded.root)
    buffer = bytearray(end + _OFFSET_BYTES)
    encoded.copy_to(buffer, ctypes.addressof(ctypes.c_char.from_buffer(buffer)))
    buffer[start:end] = encoded.root
    buffer[end:] = start.to_bytes(_OFFSET_BYTES, "little")
    return bytes(buffer)


def loads(data: bytes | bytearray | memoryview) -> Any:
    """Decode what :func:`dumps` made into memory of its own, so that the tensors are writable."""
    buffer = bytearray(data)
    end = len(buffer) - _OFFSET_BYTES
    start = int.from_bytes(buffer[end:], "little")
    return decode(buffer, buffer[start:end])
