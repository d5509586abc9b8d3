"""Packs an object once for many processes: pickled into one memfd, which each reader maps privately.

cloudpickle carries lambdas, local classes and code of ``__main__`` or a notebook by value. Large buffers (arrays, tensor storages)
lie out of band in the same memfd. Readers map them copy-on-write, so N readers cost one copy and keep their writes to themselves.
Data that already lies in a segment (``stoker.share``) is not written again; the segment's descriptor goes along. Locks, queues and
shared tensors of multiprocessing travel as they would to one spawned process: their descriptors are recorded here, and whoever
starts a child passes them on.

Large buffers may be written later (``later=True``, then ``load``), while the readers start. Until then this process holds a lock on
the file, and ``unpack`` waits for it. The kernel frees the lock when this process ends, and no forked child inherits it.
"""

from __future__ import annotations

import fcntl
import gc
import io
import mmap
import os
import pickle
import struct
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import context, reduction
from typing import Any, NamedTuple

import cloudpickle
import numpy as np
import torch

from stoker._pickling import main_module
from stoker._pickling import segment as segments
from stoker._pickling.segment import Segment, anonymous_file, close_all, duplicate, write_at
from stoker._pickling.tensors import plain_tensor
from stoker.errors import UnsendableError

_context: Any = context
_HEADER = struct.Struct("<QQQ")
_WHOLE = struct.Struct("<Q")
_PLACE = struct.Struct("<qQQ")
_HERE = -1
_ALIGN = 4096
_LATER_BYTES = 16 << 20
"""Less than this is written at once: that is faster than starting a process."""

_BY_NAME = (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType)
_NEW_DTYPES = torch.storage._new_dtypes()
"""Dtypes (uint16, float8) whose tensors torch unpickles only from its own files."""
_inherited: list[int] = []


class _BufferPlace(NamedTuple):
    """Where a buffer lies: in the packed spec's own file (``_HERE``), or in the passed descriptor with this number."""

    file: int
    at: int
    nbytes: int


class _PassedFd:
    """A descriptor in a packed spec, by its number in the list that accompanies it."""

    def __init__(self, number: int) -> None:
        self.number = number

    def detach(self) -> int:
        return _inherited[self.number]


class FdRecorder:
    """Stands for the process being spawned while objects are pickled: multiprocessing gives it descriptors to pass on."""

    DupFd = _PassedFd

    def __init__(self) -> None:
        self.fds: list[int] = []

    def duplicate_for_child(self, fd: int) -> int:
        duplicate(fd, self.fds)
        return len(self.fds) - 1

    def close(self) -> None:
        close_all(self.fds)


class SpecPickler(cloudpickle.Pickler):  # type: ignore[misc]
    """cloudpickle, plus multiprocessing's own reducers, plus storages out of band, one entry per storage."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        main_module.register_by_value()
        self.modules: set[str] = set()

    def reducer_override(self, obj: Any) -> Any:
        kind = type(obj)
        if isinstance(obj, _BY_NAME):
            self.modules.add(str(obj.__name__ if kind is types.ModuleType else obj.__module__))
        if kind is torch.UntypedStorage and obj.device.type == "cpu" and not obj.is_shared():
            if obj.nbytes() == 0:
                return torch.UntypedStorage, (0,)
            return _storage, (pickle.PickleBuffer(_storage_bytes(obj)),)
        if kind is torch.TypedStorage and _rebuilt_by_us(obj._untyped_storage):
            # torch's own way copies in band, once per tensor.
            return _typed, (obj._untyped_storage, obj.dtype)
        if kind is torch.Tensor and obj.dtype in _NEW_DTYPES and plain_tensor(obj) and _rebuilt_by_us(obj):
            place = (obj.storage_offset(), tuple(obj.shape), obj.stride())
            return _tensor, (obj.untyped_storage(), obj.dtype, *place)
        reducer = reduction.ForkingPickler._extra_reducers.get(kind)  # type: ignore[attr-defined]
        if reducer is not None and not _rebuilt_by_us(obj):
            return reducer(obj)
        return super().reducer_override(obj)


def probing(stream: Any) -> SpecPickler:
    """Return a pickler that writes no buffers, to see whether an object can be pickled."""
    return SpecPickler(stream, protocol=5, buffer_callback=lambda _: None)


def _rebuilt_by_us(obj: Any) -> bool:
    """Whether torch's own pickling would open a shared-memory file that nobody asked for."""
    if isinstance(obj, torch.Tensor):
        return not (obj.layout is torch.strided and not obj.is_nested and obj.is_shared())  # type: ignore[no-untyped-call]
    if isinstance(obj, torch.UntypedStorage):
        return not obj.is_shared()
    if isinstance(obj, torch.TypedStorage):  # its own method would warn the user
        return not obj._untyped_storage.is_shared()
    return False


def _storage_bytes(storage: torch.UntypedStorage) -> Any:
    whole = torch.empty(0, dtype=torch.uint8).set_(storage)
    return whole.numpy()


def _storage(buffer: Any) -> torch.UntypedStorage:
    return torch.from_numpy(np.frombuffer(buffer, np.uint8)).untyped_storage()


def _tensor(
    storage: torch.UntypedStorage, dtype: torch.dtype, at: int, shape: Any, stride: Any
) -> torch.Tensor:
    return torch.empty(0, dtype=dtype).set_(storage, at, shape, stride)


def _typed(storage: torch.UntypedStorage, dtype: torch.dtype) -> torch.TypedStorage:
    return torch.TypedStorage(wrap_storage=storage, dtype=dtype, _internal=True)  # type: ignore[no-untyped-call]


class SpecPickle:
    """A packed object. Owner: the pool that starts the readers. ``fds`` must reach every reader, in this order.

    ``root_bytes`` is the size of the pickle that a reader loads; large buffers are only mapped. ``modules`` are the modules
    that the pickle names.

    An object larger than ``limit_bytes`` is refused before it takes any memory. With ``later``, the caller must call ``load``,
    which writes the large buffers.
    """

    def __init__(self, obj: object, *, limit_bytes: int | None = None, later: bool = False) -> None:
        recorder = FdRecorder()
        self.fds = recorder.fds
        self.fd = -1
        self._own: list[int] = []
        self._owner_pid = os.getpid()
        self._unwritten: list[tuple[memoryview, int]] = []
        buffers: list[pickle.PickleBuffer] = []
        stream = io.BytesIO()
        previous = _context.get_spawning_popen()
        _context.set_spawning_popen(recorder)
        pickler = SpecPickler(stream, protocol=5, buffer_callback=buffers.append)
        done = False
        try:
            with collector_paused():
                pickler.dump(obj)
            done = True
        except Exception as error:
            # Imported after a failure only: workers should import little.
            from stoker._pickling import find_unpicklable

            raise find_unpicklable.unsendable_error(obj, error, probing) from error
        finally:
            _context.set_spawning_popen(previous)
            if not done:
                recorder.close()
        self.root_bytes = stream.tell()
        self.modules = frozenset(pickler.modules)
        try:
            views = [buffer.raw() for buffer in buffers]
            found = [_in_segment(view) for view in views]
            nbytes = self.root_bytes + sum(
                view.nbytes for view, known in zip(views, found, strict=True) if known is None
            )
            if limit_bytes is not None and nbytes > limit_bytes:
                raise UnsendableError(
                    f"the dataset takes {nbytes >> 20} MiB and a copy of it may take {limit_bytes >> 20} MiB here"
                )
            self._write(stream.getbuffer(), views, found)
            if not later or nbytes < _LATER_BYTES:
                self.load()
        except BaseException:
            self.close()
            raise

    def load(self) -> None:
        """Write the large buffers, so that readers can go on. Idempotent. Called in the process that packed."""
        if self._unwritten:
            for view, at in self._unwritten:
                write_at(self.fd, view, at)
            self._unwritten = []
            write_at(self.fd, _WHOLE.pack(1), 0)
            fcntl.lockf(self.fd, fcntl.LOCK_UN)

    def _write(
        self,
        root: memoryview,
        views: Sequence[memoryview],
        found: Sequence[tuple[Segment, int] | None],
    ) -> None:
        """Make the file with everything but the large buffers, and lock it if there are any."""
        places = []
        files: dict[int, int] = {}
        cursor = _HEADER.size + _PLACE.size * len(views) + len(root)
        for view, known in zip(views, found, strict=True):
            if known is None:
                cursor = -(-cursor // _ALIGN) * _ALIGN
                places.append(_BufferPlace(_HERE, cursor, view.nbytes))
                cursor += view.nbytes
                continue
            segment, at = known
            if segment.fd not in files:
                files[segment.fd] = len(self.fds)
                duplicate(segment.fd, self.fds)
            places.append(_BufferPlace(files[segment.fd], at, view.nbytes))
        self.fd = anonymous_file("stoker-spec", into=self._own)
        os.ftruncate(self.fd, cursor)
        self._unwritten = [
            (view, place.at)
            for place, view in zip(places, views, strict=True)
            if place.file == _HERE and view.nbytes
        ]
        if self._unwritten:
            fcntl.lockf(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        head = _HEADER.pack(not self._unwritten, len(views), len(root))
        head += b"".join(_PLACE.pack(*place) for place in places)
        write_at(self.fd, head, 0)
        write_at(self.fd, root, len(head))

    def close(self) -> None:
        """Close our descriptors; readers keep theirs. Idempotent."""
        close_all(self._own)
        close_all(self.fds)
        self.fd = -1
        self._unwritten = []

    def __del__(
        self, _getpid: Callable[[], int] = os.getpid, _exits: Callable[[], bool] = sys.is_finalizing
    ) -> None:
        # In case Ctrl-C comes before anybody has it.
        if not _exits() and getattr(self, "_owner_pid", None) == _getpid():
            self.close()


def unpack(fd: int, fds: Sequence[int]) -> Any:
    """Return the object of a packed spec, in a reader process. ``fds`` are the passed descriptors in this process.

    Waits until all of it is written, or the packing process is gone.
    """
    fcntl.lockf(fd, fcntl.LOCK_SH)
    fcntl.lockf(fd, fcntl.LOCK_UN)
    size = os.fstat(fd).st_size
    mapping = mmap.mmap(fd, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    view = memoryview(mapping)
    whole, count, root_bytes = _HEADER.unpack_from(view, 0)
    if not whole:
        raise UnsendableError(
            "the dataset did not arrive: the process that sent it stopped before all of it was written"
        )
    start = _HEADER.size + _PLACE.size * count
    places = [_BufferPlace(*fields) for fields in _PLACE.iter_unpack(view[_HEADER.size : start])]
    _inherited[:] = fds
    files = {_HERE: view}
    for number in {place.file for place in places} - {_HERE}:
        files[number] = memoryview(segments.adopt(fds[number]))
    buffers = [files[place.file][place.at : place.at + place.nbytes] for place in places]
    with collector_paused():
        return pickle.loads(view[start : start + root_bytes], buffers=buffers)


@contextmanager
def collector_paused() -> Iterator[None]:
    """Switch the garbage collector off. Pickling makes millions of objects and no garbage; looking takes a fifth of the time."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def _in_segment(view: memoryview) -> tuple[Segment, int] | None:
    """Return the segment that already holds a buffer, and the place in it; None if there is none."""
    if not view.nbytes:
        return None
    return segments.find(np.frombuffer(view, np.uint8).ctypes.data, view.nbytes)
