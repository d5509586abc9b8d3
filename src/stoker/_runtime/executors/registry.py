"""How an executor of each kind is made. A new executor is one module in this folder and one entry in ``MAKERS``.

Its name and its traits stand with the argument's other values, in ``stoker/arguments.py`` (``Executor``, ``EXECUTORS``): records
and tools read them there, without importing the runtime. Other code asks for a trait, never for a name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stoker._pickling.spec_pickle import SpecPickle
from stoker._runtime.executors.base import Executor
from stoker._runtime.executors.inline import InlineExecutor
from stoker._runtime.executors.process.executor import ProcessExecutor
from stoker._runtime.executors.thread import ThreadExecutor
from stoker._runtime.protocol.worker_spec import WorkerSpec
from stoker._runtime.transport.arena import Arena


@dataclass(frozen=True, slots=True)
class Request:
    """What an executor is made from. ``arena``, ``context`` and ``packed_spec`` are there for kinds with ``processes``."""

    spec: WorkerSpec
    bound: bool
    """Whether each task belongs to a certain worker. Otherwise any idle worker takes the next one."""
    arena: Arena | None = None
    context: Any = None
    """The multiprocessing context that starts the workers."""
    packed_spec: SpecPickle | None = None
    """The pickled spec, for start methods that need it."""
    backend: Any = None
    """What the user passed as ``executor``, if that was an object, ``stoker.Ray`` for instance."""
    grows: bool = False
    """Whether the loader chooses the number of workers itself."""


def make(kind: str, request: Request) -> Executor:
    """Called by a new pool. Starts no worker. Raises what the executor's constructor raises."""
    return MAKERS[kind](request)


def _process(request: Request) -> Executor:
    assert request.arena is not None
    return ProcessExecutor(
        request.spec, request.context, request.arena, bound=request.bound, packed_spec=request.packed_spec
    )


def _thread(request: Request) -> Executor:
    return ThreadExecutor(request.spec, bound=request.bound)


def _inline(request: Request) -> Executor:
    return InlineExecutor(request.spec)


def _ray(request: Request) -> Executor:
    from stoker._runtime.executors.ray.executor import RayExecutor  # most loaders need none of it

    assert request.arena is not None
    return RayExecutor(
        request.spec,
        request.context,
        request.arena,
        bound=request.bound,
        packed_spec=request.packed_spec,
        options=request.backend,
        grows=request.grows,
    )


MAKERS: dict[str, Callable[[Request], Executor]] = {
    "process": _process,
    "thread": _thread,
    "inline": _inline,
    "ray": _ray,
}
