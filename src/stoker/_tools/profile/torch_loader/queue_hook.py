"""Notes when the parent receives a batch of torch's workers: before it reads and unpickles it, and around pinning."""

from __future__ import annotations

import time
from typing import Any

_clock = time.monotonic_ns


class QueueHook:
    """At the queues of one iterator, which are the parent's own objects. They stay what they are.

    Without pinning, ``next()`` itself reads: ``received_ns`` is when it last began to. With pinning a thread of torch's reads, pins
    and passes on; that is noted by batch.
    """

    def __init__(self, iterator: Any) -> None:
        self.received_ns = 0
        self._unpickled: dict[Any, int] = {}
        self._pins = bool(getattr(iterator, "_pin_memory", False))
        queue = getattr(iterator, "_worker_result_queue", None)
        if self._pins:
            self._follow_pinning(queue)
        elif hasattr(queue, "_recv_bytes"):
            self._follow_reading(queue)

    def arrival(self, idx: int) -> tuple[int, bool]:
        """When the batch was at hand, and whether it was pinned from then on. 0: it had been read before, or nobody knows."""
        if self._pins:
            at_ns = self._unpickled.pop(idx, 0)
            return at_ns, at_ns > 0
        return self.received_ns, False

    def _follow_reading(self, queue: Any) -> None:
        receive = queue._recv_bytes

        def observed(*args: Any, **kwargs: Any) -> Any:
            self.received_ns = _clock()
            return receive(*args, **kwargs)

        queue._recv_bytes = observed

    def _follow_pinning(self, queue: Any) -> None:
        """On torch's thread: what it has taken is pinned next, and what it pins is handed over by ``idx`` later."""
        get = queue.get

        def observed(*args: Any, **kwargs: Any) -> Any:
            message = get(*args, **kwargs)
            if type(message) is tuple and type(message[0]) is int:
                self._unpickled[message[0]] = _clock()
            return message

        queue.get = observed
