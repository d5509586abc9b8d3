"""Makes ``get_worker_info()`` answer in worker processes and on worker threads.

torch's ``get_worker_info()`` reads a global of its own module. A worker process sets that global, as torch does. Worker threads
cannot, because the answer differs per thread and must stay None in the main thread. So the first thread pool replaces the body of
that function by one that asks the current thread first. The function object stays, so names imported earlier keep working.
"""

from __future__ import annotations

from typing import Any

from torch.utils.data._utils import worker as torch_worker

from stoker._runtime.protocol.thread_context import current


def set_process_info(worker: int, num_workers: int, seed: int, dataset: Any) -> None:
    """Make ``get_worker_info()`` answer in a worker process."""
    torch_worker._worker_info = torch_worker.WorkerInfo(
        id=worker, num_workers=num_workers, seed=seed, dataset=dataset
    )


def set_thread_info(worker: int, num_workers: int, seed: int, dataset: Any) -> None:
    """Make ``get_worker_info()`` answer on this thread only."""
    _answer_per_thread()
    current.info = torch_worker.WorkerInfo(id=worker, num_workers=num_workers, seed=seed, dataset=dataset)


def _answer_per_thread() -> None:
    names = torch_worker.__dict__
    if "_stoker_current" in names:
        return
    names["_stoker_current"] = current

    def get_worker_info():  # type: ignore[no-untyped-def]
        return _stoker_current.info or _worker_info  # type: ignore[name-defined]  # noqa: F821

    torch_worker.get_worker_info.__code__ = get_worker_info.__code__
