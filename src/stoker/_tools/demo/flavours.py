"""The demo's dataset in four flavours. A row takes a known time on any machine: each is sized by a short trial.

Datasets are plain, so that workers of any start method can make them; nothing is downloaded.
"""

from __future__ import annotations

import io
import itertools
import time
from collections.abc import Callable
from typing import Any, Protocol

import torch

ENDLESS = 10**9
"""A length that no run comes to the end of."""
STRAGGLER_EVERY, STRAGGLER_TIMES = 61, 100
"""One row in so many takes so many times as long."""

_IMAGES = 16
_FIRST_SIDE = 192
_SIDES = (64, 1024)
_MADE_SIDE = 96
_TRIAL_S = 0.02
_PIECES = 5


class FlavourMissing(Exception):
    """A flavour cannot be made here. The message says what to install."""


class Flavour(Protocol):
    """A map-style dataset whose rows take ``row_s``, about."""

    row_s: float

    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> Any: ...


class Sleeping:
    """Rows that wait, as for storage or a network: a CPU is free meanwhile."""

    def __init__(self, row_s: float, length: int = ENDLESS) -> None:
        self.row_s = row_s
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(self.row_s)
        return torch.full((16,), float(index))


class Straggling(Sleeping):
    """Rows that wait a little, but for one in 61, which takes 100 times as long. ``row_s`` is that of the others."""

    def __getitem__(self, index: int) -> torch.Tensor:
        slow = index % STRAGGLER_EVERY == STRAGGLER_EVERY - 1
        time.sleep(self.row_s * STRAGGLER_TIMES if slow else self.row_s)
        return torch.full((16,), float(index))


class Computing:
    """Rows that pure Python makes: a CPU is busy, and the interpreter's lock is held."""

    def __init__(self, row_s: float, length: int = ENDLESS) -> None:
        self._length = length
        self._turns = 1000
        took_s = trial(lambda: self[0])
        self._turns = max(10, round(1000 * row_s / took_s))
        self.row_s = trial(lambda: self[0])

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> torch.Tensor:
        value = index
        for _ in range(self._turns):
            value = (value * 1_103_515_245 + 12_345) & 0x7FFF_FFFF
        return torch.full((16,), float(value))


class Decoding:
    """Rows that are JPEGs in memory, decoded and made smaller by Pillow, as image datasets do. Raises FlavourMissing without it."""

    def __init__(self, row_s: float, length: int = ENDLESS) -> None:
        try:
            import PIL.Image  # noqa: F401
        except ImportError:
            raise FlavourMissing("Pillow is not installed: pip install pillow") from None
        self._length = length
        self._files = [_jpeg(_FIRST_SIDE, seed=0)]
        took_s = trial(lambda: self[0])
        side = round(_FIRST_SIDE * (row_s / took_s) ** 0.5)  # what decoding takes goes with the pixels
        side = max(_SIDES[0], min(_SIDES[1], side))
        self._files = [_jpeg(side, seed) for seed in range(_IMAGES)]
        self.row_s = trial(lambda: self[0])

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> torch.Tensor:
        import numpy as np
        from PIL import Image

        with Image.open(io.BytesIO(self._files[index % len(self._files)])) as image:
            small = image.convert("RGB").resize((_MADE_SIDE, _MADE_SIDE))
        return torch.from_numpy(np.array(small)).permute(2, 0, 1)


MAKERS: dict[str, tuple[str, Callable[[float], Flavour]]] = {
    "sleep": ("sleeping", Sleeping),
    "jpeg": ("decoding JPEGs", Decoding),
    "python": ("pure Python", Computing),
    "stragglers": ("stragglers", Straggling),
}
"""By name: what it is called in a sentence, and what makes it, with the seconds that a row is to take."""


def trial(work: Callable[[], object]) -> float:
    """CPU seconds that a piece of work takes, the least of a few stretches: others on the machine do not count."""
    return min(_stretch(work, _TRIAL_S / _PIECES) for _ in range(_PIECES))


def _stretch(work: Callable[[], object], seconds: float) -> float:
    began = time.thread_time()
    for count in itertools.count(1):
        work()
        spent = time.thread_time() - began
        if spent >= seconds:
            return spent / count
    raise AssertionError("counting does not end")


def _jpeg(side: int, seed: int) -> bytes:
    """A picture with shapes and some noise: its file is about as large as a photograph's of that size."""
    import numpy as np
    from PIL import Image

    random = np.random.default_rng(seed)
    coarse = random.integers(0, 256, (max(2, side // 24), max(2, side // 24), 3), dtype=np.uint8)
    smooth = np.asarray(Image.fromarray(coarse).resize((side, side)), dtype=np.int16)
    noisy = np.clip(smooth + random.integers(-12, 13, smooth.shape, dtype=np.int16), 0, 255).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(noisy).save(file, "JPEG", quality=90)
    return file.getvalue()
