"""The process at the other end of a connection has ended.

What it finds
-------------
`ConnectionResetError`, `ConnectionRefusedError`, `BrokenPipeError`, `EOFError` or `digest … was rejected` while a tensor
was on its way between processes.

Why it hurts
------------
torch passes a descriptor for each tensor through a socket of the process that made it. If that process has ended, the
tensor is lost. The error is about the connection, not about the end of the process.

Example
-------
```text
  File ".../torch/utils/data/dataloader.py", line 1295, in _try_get_data
  File ".../torch/multiprocessing/reductions.py", line 541, in rebuild_storage_fd
ConnectionResetError: [Errno 104] Connection reset by peer
```

Fix
---
Look for what ended the other process: a worker that was killed (STK603, STK801), or a loop that was left while batches were
on their way (harmless at exit). Batches that outlive their loader have to be cloned: `batch = batch.clone()`.

`digest sent was rejected`: the processes do not share a key: make the loader in the process that iterates it.
"""

from __future__ import annotations

from stoker._tools.doctor.check import Check, Mark
from stoker._tools.doctor.wording import (
    ERROR_LINE,
    FOREIGN,
    FRAME,
    LOADER,
    NETWORK,
    OTHERS,
    POOLS,
    WITH_WORKERS,
)

CHECK = Check(
    __name__,
    __doc__,
    severity="moderate",
    prevented="Descriptors are passed once, when a worker starts; a batch that has arrived belongs to the parent and survives"
    " its worker.",
    marks=(
        Mark(
            r"ConnectionResetError|ConnectionRefusedError|ConnectionAbortedError|BrokenPipeError|^EOFError|"
            r"OSError: \[Errno 9\] Bad file descriptor",
            also=(
                (
                    r"rebuild_storage_fd|reductions\.py|resource_sharer|in _try_get_data|pin_memory\.py|"
                    r"_utils[\\/]worker\.py|in _feed\b|in (?:recvfds|recv_handle|send_handle)\b|worker_result_queue|"
                    r"in _shutdown_workers"
                ),
                LOADER,
            ),
            never=(
                r"popen_spawn",
                r"Caught (?:EOF|ConnectionReset|ConnectionRefused|BrokenPipe)Error in DataLoader worker process",
                FOREIGN,
                NETWORK,
            ),
            weight=11,
        ),
        Mark(r"\[WinError (?:5|6|87)\]", also=(LOADER, r"reduction\.py|connection\.py|spawn\.py"), weight=10),
        Mark(
            r"\[WinError (?:5|6|87)\]",
            also=(r"spawn_main|multiprocessing[\\/]reduction\.py",),
            never=(OTHERS, POOLS),
            weight=9,
        ),
        Mark(  # an index was being sent, and the words were cut off
            r"index_queues\[[^\n]{1,60}\]\.put\(",
            also=(r"connection\.py\", line \d+, in _send(?:_bytes)?\b",),
            never=(ERROR_LINE, FOREIGN, r"KeyboardInterrupt"),
            weight=7,
        ),
        Mark(r"digest (?:sent was rejected|received was wrong)", weight=16),
        Mark(
            r"ConnectionResetError|forcibly closed by the remote host",
            also=(LOADER, r"multiprocessing[\\/]connection\.py"),
            never=(FOREIGN, NETWORK),
            weight=10,
        ),
        Mark(r"^ConnectionResetError: ", also=(WITH_WORKERS,), never=(FRAME, FOREIGN, NETWORK), weight=8),
    ),
    rows=(32,),
)
