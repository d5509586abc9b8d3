"""Reads whole files that somebody names, up to a size: a device, a pipe or a disk's worth of data ends in a sentence."""

from __future__ import annotations

import errno
from pathlib import Path

MOST_BYTES = 1 << 28
"""What nothing that stoker writes reaches: 256 MB."""
_PIECE_BYTES = 1 << 20


def read(path: Path, most_bytes: int = MOST_BYTES) -> bytes:
    """The whole file. Raises OSError when it cannot be read, or has more than ``most_bytes``."""
    pieces: list[bytes] = []
    left = most_bytes + 1
    with path.open("rb") as file:
        # ``read`` takes memory for all that it is asked for.
        while left and (piece := file.read(min(left, _PIECE_BYTES))):
            pieces.append(piece)
            left -= len(piece)
    if not left:
        raise OSError(errno.EFBIG, f"it has more than {most_bytes >> 20} MB", str(path))
    return b"".join(pieces)
