"""What the fork server imports once for all workers. Imported there only, and for this effect.

A terminal sends Ctrl-C to the server too. While it imports, that would print a traceback beside the training script's own; later
the server ignores it by itself.
"""

from __future__ import annotations

import signal

_previous = signal.signal(signal.SIGINT, signal.SIG_IGN)

import stoker._worker.entry  # noqa: E402, F401  # brings numpy and torch

signal.signal(signal.SIGINT, _previous)
