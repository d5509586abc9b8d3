"""Warns once when rows draw from global generators that several threads share: such numbers depend on timing."""

from __future__ import annotations

import logging
import pickle
import random

import numpy as np
import torch

_log = logging.getLogger("stoker")


class RngUse:
    """Compares the global generators with their states when it was made. Making one takes about 50 µs."""

    def __init__(self) -> None:
        self._before = _states()

    def warn_if_drawn(self) -> None:
        """Warn about the generators that were drawn from since."""
        now = _states()
        names = [name for name, before in self._before.items() if now[name] != before]
        if names:
            _log.warning(
                "%s is a random generator that the threads of a worker share (threads_per_worker), so its numbers depend "
                "on their timing. Use stoker.generator() instead: it is seeded for each sample",
                " and ".join(names),
            )


def _states() -> dict[str, object]:
    return {
        "random": random.getstate(),
        "numpy.random": pickle.dumps(np.random.get_state(legacy=False)),
        "torch's default generator": torch.default_generator.get_state().numpy().tobytes(),
    }
