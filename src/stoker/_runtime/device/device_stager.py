"""Copies batches to a device: one asynchronous copy per batch, on the side stream of the loader.

    slot ──one copy of its bytes, side stream──► device buffer ──► the batch as views of it
      │                                              │
      └─ lease until the copy's event is done        └─ recorded on the consumer's stream, which waits for the event

The rules, which no path may leave out:

- The source is kept until the copy's event is done, whatever becomes of the batch. The event is queried, never waited for,
  except when the arena is closed.
- The consumer's stream waits for the event when the batch is handed over. The host does not wait.
- The device buffer is made on the side stream and recorded on the consumer's stream. So torch's allocator does not give it to a
  later batch while the consumer still reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch

from stoker._runtime.device.accelerator import on_stream
from stoker._runtime.device.device_batch import FoundTensors, found, rebuilt, replaced
from stoker._runtime.device.device_link import PAGEABLE, DeviceLink
from stoker._runtime.device.packing import LooseTensors, PackedTensors, in_slot
from stoker._runtime.device.stager import FencedSources, Source
from stoker._runtime.device.staging_thread import StagingJob, StagingThread
from stoker._runtime.transport.flat_table import FlatTable
from stoker.errors import DeviceError, coded

_current_stream = torch.accelerator.current_stream
_DEVICE_ERRORS: tuple[type[RuntimeError], ...] = (torch.OutOfMemoryError,)
"""What devices raise, apart from anything that an object's own ``to`` may raise."""
if hasattr(torch, "AcceleratorError"):  # since torch 2.8
    _DEVICE_ERRORS += (torch.AcceleratorError,)


class EventFence:
    """The event of a copy, with the memory that it reads. A device that is lost reads nothing any more: its fences are done."""

    __slots__ = ("_event", "_host")

    def __init__(self, event: torch.Event, host: Any) -> None:
        self._event = event
        self._host = host

    def done(self) -> bool:
        """Whether the copy is done. It never waits."""
        try:
            return self._event.query()
        except Exception:
            return True

    def wait(self) -> None:
        """Return when it is."""
        try:  # noqa: SIM105  # called in finalizers, too
            self._event.synchronize()
        except Exception:
            pass


class DeviceCopy:
    """A batch on its way to the device. It is built at once, unless objects that move themselves are in it."""

    __slots__ = ("_batch", "_buffer", "_event", "_link", "_source", "_views", "fence")

    def __init__(
        self, link: DeviceLink, batch: Any, source: Source | None, views: dict[int, torch.Tensor]
    ) -> None:
        self._link = link
        self._buffer: torch.Tensor | None = None
        self._event: torch.Event | None = None
        self.fence: EventFence | None = None
        self._batch = batch
        self._source = source
        """The host batch, if objects in it move themselves. Then the views take the place of its tensors when it is taken."""
        self._views = views

    def under_way(self, buffer: torch.Tensor, event: torch.Event, host: torch.Tensor) -> DeviceCopy:
        """The copy from ``host`` to ``buffer`` has begun, and ``event`` ends it."""
        self._event = event
        self.fence = EventFence(event, host)
        self._buffer = buffer
        self._link.ahead += 1
        self._link.ahead_bytes += buffer.nbytes
        return self

    def ready(self) -> None:
        """It never waits for the device."""

    def take(self, sources: FencedSources) -> Any:
        """The batch; the consumer's stream waits for it."""
        link, buffer, event = self._link, self._buffer, self._event
        link.batches += 1
        self._forget()
        if buffer is not None and event is not None:
            try:
                consumer = _current_stream(link.device.index)  # by its number it is found sooner
                consumer.wait_event(event)
                buffer.record_stream(consumer)
                link.handed_over(consumer)
            except RuntimeError as error:
                raise explained(error) from None
        if self._source is None:
            return self._batch
        return self._ask(self._source, sources)

    def _ask(self, source: Source, sources: FencedSources) -> Any:
        """Objects that move themselves do so on the consumer's stream: nobody else knows what they make there."""
        link, views = self._link, self._views
        try:
            return rebuilt(
                source.batch, lambda tensor: views[id(tensor)], lambda each: _moved(each, link.device)
            )
        except _DEVICE_ERRORS as error:
            raise explained(error) from None
        finally:  # an object may raise after others have begun to copy
            with suppress(RuntimeError):  # then nothing reads the source any more
                sources.keep(EventFence(_recorded(_current_stream(link.device)), None), source)

    def _forget(self) -> None:
        buffer, self._buffer = self._buffer, None
        if buffer is not None:
            self._link.ahead -= 1
            self._link.ahead_bytes -= buffer.nbytes

    def __del__(self) -> None:
        self._forget()


class DeviceStager:
    """Copies batches to the device of a link. One per iteration."""

    to_device = True

    def __init__(self, link: DeviceLink, ahead: int, *, worker_thread: bool) -> None:
        self._link = link
        self.ahead = ahead if link.stream is not None else 0
        self._thread = StagingThread(link.device.index) if worker_thread else None

    def stage(self, source: Source) -> Any:
        """Begin the copy: here if the slot is registered, else on the staging thread."""
        link = self._link
        if link.stream is None:
            return _Synchronous(link, source)
        memory = source.memory
        tensors: FoundTensors | None = None
        placed: PackedTensors | FlatTable | None = source.table
        if placed is None:
            tensors = found(source.batch)
            placed = in_slot(tensors.tensors, memory) if memory is not None else None
        if placed is not None and memory is not None:
            if not placed.nbytes or link.locks(memory):
                host = memory.bytes_at(placed.start, placed.start + placed.nbytes) if placed.nbytes else None
                return self._begin(source, placed, host, tensors)
            slot = memory.bytes_at(placed.start, placed.start + placed.nbytes)
            return self._later(source, placed, slot, tensors)
        assert tensors is not None
        return self._later(source, LooseTensors(tensors.tensors), None, tensors)

    def hold_back(self, *, ready: bool) -> None:
        """Wait while the device is too many batches behind."""
        try:
            self._link.hold_back(ready=ready)
        except RuntimeError as error:
            raise explained(error) from None

    def close(self) -> None:
        """End the thread, if there is one."""
        if self._thread is not None:
            self._thread.close()

    def _later(
        self,
        source: Source,
        placed: PackedTensors | FlatTable,
        slot: torch.Tensor | None,
        tensors: FoundTensors | None,
    ) -> Any:
        """Page-lock the bytes first, on the thread."""

        def work() -> tuple[Callable[[FencedSources], Any], Any]:
            copy = self._begin(source, placed, self._host_bytes(placed, slot), tensors)
            return copy.take, copy.fence

        job = StagingJob(work)
        if self._thread is None:
            job.run()
        else:
            self._thread.do(job)
        return job

    def _host_bytes(
        self, placed: PackedTensors | FlatTable, slot: torch.Tensor | None
    ) -> torch.Tensor | None:
        """The bytes of the range, in page-locked memory if torch has any."""
        link = self._link
        if not placed.nbytes:
            return None
        if slot is None:
            assert isinstance(placed, LooseTensors)
            slot = self._page_locked(placed.nbytes)
            placed.pack(slot)
            return slot
        if link.memory == PAGEABLE:
            return slot
        try:
            return slot.pin_memory()
        except RuntimeError as error:
            link.cannot_pin(error)
            return slot

    def _page_locked(self, nbytes: int) -> torch.Tensor:
        link = self._link
        if link.memory != PAGEABLE:
            try:
                return torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)
            except RuntimeError as error:
                link.cannot_pin(error)
        return torch.empty(nbytes, dtype=torch.uint8)

    def _begin(
        self,
        source: Source,
        placed: PackedTensors | FlatTable,
        host: torch.Tensor | None,
        tensors: FoundTensors | None,
    ) -> DeviceCopy:
        """Begin the copy of ``host``. Its fence keeps ``host``, and whoever has the fence keeps the source."""
        link = self._link
        assert link.stream is not None
        nbytes = 0 if host is None else host.nbytes
        try:
            with on_stream(link.stream):
                buffer = torch.empty(nbytes, dtype=torch.uint8, device=link.device)
                copy = self._built(source, placed, buffer, tensors)
                if host is None:
                    return copy
                before = link.times.begun(link.stream)
                buffer.copy_(host, non_blocking=True)
                timed = None if before is None else link.times.ended(before, link.stream)
                event = _recorded(link.stream) if timed is None else timed
        except RuntimeError as error:
            raise explained(error) from None
        link.copies += 1
        link.copied_bytes += nbytes
        return copy.under_way(buffer, event, host)

    def _built(
        self,
        source: Source,
        placed: PackedTensors | FlatTable,
        buffer: torch.Tensor,
        tensors: FoundTensors | None,
    ) -> DeviceCopy:
        """The batch over ``buffer``. One with objects that move themselves is built when it is taken."""
        if isinstance(placed, FlatTable):
            return DeviceCopy(self._link, placed.batch_over(buffer), None, {})
        assert tensors is not None
        views = placed.views(buffer)
        if tensors.asks:
            return DeviceCopy(self._link, None, source, views)
        return DeviceCopy(self._link, replaced(source.batch, tensors, views), None, {})


class _Synchronous:
    """For a device without streams: the batch is copied when it is taken."""

    fence = None

    def __init__(self, link: DeviceLink, source: Source) -> None:
        self._link = link
        self._source = source

    def ready(self) -> None:
        """There is nothing to wait for."""

    def take(self, sources: FencedSources) -> Any:
        """Copy the batch now."""
        device = self._link.device
        self._link.batches += 1
        return rebuilt(
            self._source.opened(),
            lambda tensor: tensor.to(device),
            lambda each: _moved(each, device, non_blocking=False),
        )


def _recorded(stream: torch.Stream) -> torch.Event:
    """An event behind the copy that was begun. Without one nobody would know when the copy is done: it is waited for."""
    try:
        return stream.record_event()
    except RuntimeError:
        with suppress(RuntimeError):
            stream.synchronize()
        raise


def _moved(value: Any, device: torch.device, *, non_blocking: bool = True) -> Any:
    """Ask an object with its own ``to``. A tensor that lies on a device already is the dataset's mistake.

    A meta tensor has no data that could go anywhere: it stays.
    """
    if isinstance(value, torch.Tensor) and value.device.type != "cpu":
        if value.device.type == "meta":
            return value
        raise coded(
            DeviceError(
                f"a batch has a tensor on {value.device}, and device={str(device)!r} brings batches there itself: return CPU "
                "tensors from the dataset and collate_fn"
            ),
            "STK304",
        )
    try:
        return value.to(device, non_blocking=non_blocking)
    except TypeError:
        return value.to(device)


def explained(error: RuntimeError) -> RuntimeError:
    """The error of a device, with the code of its page."""
    if isinstance(error, torch.OutOfMemoryError):
        return coded(error, "STK606")
    return coded(error, "STK812")
