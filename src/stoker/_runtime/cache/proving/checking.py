"""Makes kept samples again and compares them, bit for bit: ``verify=``, and the first samples after a change."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

from stoker._runtime.cache.proving.draws import DrawWatch, other_seed
from stoker._runtime.cache.storage import sample_codec
from stoker.errors import CacheMismatch, RandomSamples

_seeds = itertools.count(0xC0FFEE)
_GOLDEN = 0.6180339887498949


class Verifier:
    """Chooses a share of the hits, evenly. Each process begins at another one."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._due = os.getpid() * _GOLDEN % 1.0

    def due(self) -> bool:
        """Whether this hit is one of them."""
        if not self._share:
            return False
        self._due += self._share
        if self._due < 1.0:
            return False
        self._due -= 1.0
        return True


def made_again(make: Callable[[], Any], owned: Sequence[tuple[str, Any]]) -> tuple[Any, list[str]]:
    """Make something under another seed and outside of any sample; return it, and the generators that it drew from.

    On other threads than the main one it is only made: they share the global generators with the trainer and with each other.
    """
    if threading.current_thread() is not threading.main_thread():
        return make(), []
    with other_seed(next(_seeds), owned):
        watch = DrawWatch(owned)
        mark = watch.mark()
        made = make()
        return made, watch.drawn(mark)


def require_equal(name: str, again: tuple[Any, list[str]], kept: bytes | None, sample: Any) -> None:
    """Compare something made again with the bytes that are kept, or with the sample made first.

    Raises RandomSamples if it drew, CacheMismatch if a kept one differs.
    """
    made, drawn = again
    if drawn:
        raise RandomSamples(
            f"{name} draws from {' and '.join(drawn)}, so it cannot be kept. Cache what comes before that",
            drawn,
        )
    fresh = encoded_bytes(made)
    if kept is None:
        if fresh != encoded_bytes(sample):
            raise RandomSamples(
                f"{name} differs each time it is made, so it cannot be kept; no known generator was drawn from"
            )
    elif fresh != kept and not _equal_when_decoded(made, kept):
        raise CacheMismatch(
            f"{name} is kept in the cache, and made again it differs: it depends on something that is not part of the dataset, "
            "such as a file, a global, the time or the worker. Do not cache it, or remove the cache and begin anew"
        )


def encoded_bytes(sample: Any) -> bytes:
    """Return a sample as the store has it."""
    encoded = sample_codec.encode(sample)
    return b"".join([*map(bytes, encoded.data), encoded.root])


def _equal_when_decoded(made: Any, kept: bytes) -> bool:
    """Whether they are equal after a round trip: pickles of equal objects differ where parts of one are shared."""
    data = sample_codec.encode(made)
    length = sum(len(each) for each in data.data)
    fresh = sample_codec.decode(bytearray(b"".join(map(bytes, data.data))), 0, data.root)
    if len(kept) != length + len(data.root):
        return False
    stored = sample_codec.decode(bytearray(kept[:length]), 0, kept[length:])
    return encoded_bytes(fresh) == encoded_bytes(stored)
