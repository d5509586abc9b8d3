"""Runs the loop of a worker process: take a task, make the batch in its slot, send the header, repeat.

    recv (blocks) ─► claim on the status page ─► fetch ─► collate into the slot ─► write header to the result pipe

The loop holds no lock and owns nothing that the parent waits for. It can be killed between any two lines.
"""

from __future__ import annotations

import gc
import os
import pickle
import socket
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import reduction
from typing import TYPE_CHECKING, Any, NoReturn

from stoker._runtime.dataset_sync.receiver import RevisionReceiver
from stoker._runtime.protocol import failures, log_forwarding, stacks, status_page, wire
from stoker._runtime.protocol.lifeline import hold_lifeline
from stoker._runtime.protocol.spec_fds import SpecFds
from stoker._runtime.protocol.worker_spec import BatchOrder, Resume, WorkerSpec
from stoker._runtime.scheduler.types import Spans
from stoker._runtime.transport.base import BatchWriter, SlotSource, WrittenBatch
from stoker._runtime.transport.writer import ArenaWriter
from stoker._runtime.worker import collation, context, trim
from stoker._runtime.worker.batch_maker import BatchMaker, StatusView, collate_samples
from stoker._runtime.worker.collate_errors import note_indices
from stoker._runtime.worker.cpu_meter import NO_READING, CpuMeter
from stoker._runtime.worker.memory_probe import MemoryProbe
from stoker._runtime.worker.process import process_setup
from stoker._runtime.worker.rng import seeding
from stoker._runtime.worker.stream import Abandoned, StreamEnded
from stoker.errors import UnsendableError, coded

if TYPE_CHECKING:
    from stoker._runtime.worker.split_batches import PartRows

_clock = time.monotonic_ns
_IDLE_SPELL_NS = 100_000
"""A worker that waited longer for a task was out of work, so the consumer likely waits for its result."""

_NO_SPANS = tuple(Spans())


@dataclass(slots=True)
class WorkerBoot:
    """Everything a worker process starts with. Inherited under fork; otherwise its descriptors travel beside it."""

    worker: int
    task_fd: int
    result_fd: int
    lifeline_fd: int
    note_fd: int
    arena_fd: int
    status_fd: int
    stride: int
    reserve: bool
    base_seed: int
    levels: dict[str, int]
    spec: WorkerSpec | None
    resume: Resume | None = None
    spec_fds: SpecFds | None = None
    """The descriptors of the packed spec. None under fork, and for a process forked from a template."""
    revision: int = 0
    """The announcement (``receiver.word_of``) that the dataset already includes; 0 for one from the packed spec."""
    restore: Callable[[], None] | None = None
    """Restores an inherited dataset to its state at the start of the iteration."""
    relayed: bool = False
    """Whether the slots are a relay's, which must be told where the rows of a part lie."""

    def __reduce__(self) -> Any:
        """For spawn and forkserver: duplicate every descriptor for the child. Called while the process is spawned."""
        fds = [self.task_fd, self.result_fd, self.lifeline_fd, self.note_fd, self.arena_fd, self.status_fd]
        passed = [reduction.DupFd(fd) for fd in fds]
        rest = (self.stride, self.reserve, self.base_seed, self.levels, self.resume, self.spec_fds)
        return _arrive, (self.worker, passed, rest)


def _arrive(worker: int, passed: list[Any], rest: tuple[Any, ...]) -> WorkerBoot:
    stride, reserve, base_seed, levels, resume, spec_fds = rest
    task_fd, result_fd, lifeline_fd, note_fd, arena_fd, status_fd = (item.detach() for item in passed)
    return WorkerBoot(
        worker, task_fd, result_fd, lifeline_fd, note_fd, arena_fd, status_fd, stride, reserve, base_seed, levels,
        None, resume, spec_fds,
    )  # fmt: skip


_inherited: WorkerSpec | None = None
"""The spec that the template unpacked before it forked this process."""


def inherit(spec: WorkerSpec) -> None:
    """Keep the spec for workers that are forked from this process. Called by the template."""
    global _inherited
    _inherited = spec


def run(boot: WorkerBoot) -> None:
    """Entry point of the process."""
    process_setup.reset_signals()
    hold_lifeline(boot.lifeline_fd)
    if boot.spec is None:  # under fork, descriptors are as the user's process has them
        process_setup.close_on_exec()
    process_setup.name_process(str(boot.worker))
    page = status_page.StatusPage(boot.status_fd)
    stack_file = stacks.StackFile(boot.status_fd, boot.worker)
    row = page.row(boot.worker)
    row[status_page.ARMED] = stack_file.armed
    row[status_page.PID] = os.getpid()  # from here on the parent may ask for our stack
    note_socket = socket.socket(fileno=boot.note_fd)
    sender = log_forwarding.NoteSender(note_socket, boot.worker, page.control)
    log_forwarding.forward(sender, boot.levels)
    process_setup.single_thread()
    process_setup.keep_heap()
    process_setup.forget_default_device()
    collation.install()
    channel = socket.socket(fileno=boot.task_fd)
    channel.setblocking(True)  # the user may have set a default timeout for sockets
    loop = _WorkerLoop(boot, page, channel)
    try:
        loop.prepare()
        gc.freeze()  # a collection would touch, and so copy, pages shared with the parent
        loop.serve()
    except BrokenPipeError:
        _leave(0)  # the parent is gone
    except BaseException as error:  # SystemExit of a sample too: the parent reports it
        stack_file.leave(traceback.format_exc())
        sender.last()
        _leave(error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else 1)
    finally:
        sender.last()
        for held in (channel, note_socket):
            held.detach()  # without a warning about open sockets, which would reach the parent


def _regions(part: PartRows) -> bytes:
    """Return where the rows of a part lie in the slot, as a relay reads it."""
    regions = part.regions()
    return wire.COUNT.pack(len(regions)) + b"".join([wire.REGION.pack(*each) for each in regions])


def _leave(code: int) -> NoReturn:
    """End this process now. A regular exit would wait for threads and processes that the dataset started."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(code & 0xFF)


class _WorkerLoop:
    """The state of a worker's main thread."""

    def __init__(self, boot: WorkerBoot, page: status_page.StatusPage, channel: socket.socket) -> None:
        self._boot = boot
        self._control = page.control
        self._row = page.row(boot.worker)
        self._recv = channel.recv
        self._arena: SlotSource = ArenaWriter(boot.arena_fd, boot.stride, reserve=boot.reserve)
        self._receiver = RevisionReceiver(boot.arena_fd, boot.stride, self._control, boot.revision)
        self._maker: BatchMaker | None = None
        self._start_error: BaseException | None = None
        self._held: list[tuple[int, BatchWriter]] = []
        self._memory_probe = MemoryProbe(self._row, channel)
        self._meter: CpuMeter | None = None
        self._trimmed = 0

    def prepare(self) -> None:
        """Load the dataset, seed, and run ``worker_init_fn``. The first task raises its error, as in torch."""
        boot = self._boot
        try:
            spec = boot.spec
            if spec is None:
                spec = _inherited if boot.spec_fds is None else boot.spec_fds.unpack()
            assert isinstance(spec, WorkerSpec)
            if boot.restore is not None:
                boot.restore()
            self._receiver.catch_up(spec.dataset)
            if spec.collate_map and boot.spec is None:
                collation.merge(spec.collate_map)
            seed = seeding.seed_like_torch(boot.base_seed, boot.worker)
            # For workers that are added later: ids stay below the number.
            count = max(spec.num_workers, boot.worker + 1)
            context.set_process_info(boot.worker, count, seed, spec.dataset)
            watch = StatusView(self._row, self._control)
            maker = BatchMaker(spec, boot.worker, resume=boot.resume, keeps_state=True, watch=watch)
            if self._receiver.word:
                maker.seeder.revised()
            if spec.worker_init_fn is not None:
                torch_seed = seeding.torch_seed()
                try:
                    spec.worker_init_fn(boot.worker)
                except Exception as error:
                    coded(error, "STK810")
                    raise
                if seeding.torch_seed() != torch_seed:
                    maker.seeder.leave_torch()
            if spec.metered:
                self._meter = CpuMeter(
                    self._row, helpers=None if maker.fetch_threads is None else maker.fetch_threads.spent
                )
            self._maker = maker
        except Exception as error:
            self._start_error = error
        self._send(wire.ResultKind.UP, None)

    def serve(self) -> None:
        """Work until the channel closes or a LEAVE message arrives."""
        memory_probe = self._memory_probe
        recv: Callable[[int], bytes] = memory_probe.recv
        idle_since_ns = _clock()
        while True:
            message = recv(wire.MAX_TASK_BYTES)
            if not message:
                return
            received_ns = _clock()
            had_to_wait = received_ns - idle_since_ns > _IDLE_SPELL_NS
            task = wire.TaskHeader._make(wire.unpack_task(message))
            if task.kind == wire.TaskKind.LEAVE:
                self._send(wire.ResultKind.LEAVING, None)
                return
            if task.kind == wire.TaskKind.LOOK:
                self._trim_if_asked()
                continue
            row = self._row
            status_page.begin_task(row, task.epoch, task.seq, task.attempt, task.part, received_ns)
            if self._held:
                self._report_released_slots()
            memory_probe.record(received_ns)
            if task.epoch != self._control[status_page.EPOCH]:
                self._send(wire.ResultKind.SKIPPED, task)
            else:
                self._work(task, message, received_ns)
            row[status_page.PHASE] = status_page.IDLE
            if self._control[status_page.TRIM]:
                self._trim_if_asked()
            if recv is not self._recv and memory_probe.settled:
                recv = self._recv
            idle_since_ns = _clock()
            if had_to_wait:
                # This worker was idle, so the consumer likely waits for the result: let it run first.
                os.sched_yield()

    def _work(self, task: wire.TaskHeader, message: bytes, received_ns: int) -> None:
        slot = self._arena.open(task.slot)
        scratch = self._arena.open(task.scratch) if task.scratch != wire.NO_SLOT else None
        target = scratch or slot
        kind = wire.ResultKind.READY
        collated_ns = shared_bytes = 0
        order: BatchOrder | None = None
        receipt: WrittenBatch | None
        meter = self._meter
        if meter is not None and meter.slow:
            meter.began(received_ns)
        try:
            order = self._order(task, message, target)
            maker = self._maker
            if maker is None:
                assert self._start_error is not None
                raise self._start_error
            if self._control[status_page.REVISION] != self._receiver.word:
                self._receiver.catch_up(maker.spec.dataset)
                maker.seeder.revised()
            if self._receiver.error is not None:
                self._receiver.raise_error()
            if scratch is not None:
                part = maker.make_part(order, slot, self._control[status_page.LAYOUT])
                collated_ns = _clock()
                try:
                    receipt = scratch.write(part)
                    if self._boot.relayed:
                        scratch.append(_regions(part))
                    shared_bytes = part.nbytes
                except UnsendableError:
                    if part.raw is not None:  # an error of torch's collation comes first
                        collate_samples(maker.spec.collate_fn, part.raw, None, own=True)
                    raise
                del part
            else:
                batch = maker.make(order, slot)
                collated_ns = _clock()
                receipt = slot.write(batch)
                del batch
        except StreamEnded as end:
            kind = wire.ResultKind.ENDED
            receipt = None if end.final_state is None else target.write(end.final_state)
        except Abandoned:
            kind, receipt = wire.ResultKind.SKIPPED, None
        except Exception as error:
            if isinstance(error, UnsendableError) and order is not None:
                note_indices(error, order.indices)
            kind = wire.ResultKind.FAILED
            receipt = target.write(failures.pack(error, self._boot.worker))
            del error
        flags = 0  # a dataset may keep slot memory even if the batch failed
        if slot.held():
            flags |= wire.HELD_SLOT
            self._held.append((task.slot, slot))
        if scratch is not None and scratch.held():
            flags |= wire.HELD_SCRATCH
            self._held.append((task.scratch, scratch))
        sent_ns = _clock()
        reading = NO_READING if meter is None else meter.ended(received_ns, sent_ns)
        made = self._maker
        fetched_ns, slow_row, slow_ns = (0, -1, 0) if made is None else made.measured(received_ns)
        spans = (task.sent_ns, received_ns, fetched_ns, collated_ns, sent_ns, *reading, slow_row, slow_ns)
        self._send(kind, task, flags=flags, receipt=receipt, shared_bytes=shared_bytes, spans=spans)

    def _order(self, task: wire.TaskHeader, message: bytes, target: BatchWriter) -> BatchOrder:
        if task.flags & wire.INLINE:
            indices = pickle.loads(memoryview(message)[wire.TASK.size :])
        else:
            indices = pickle.loads(target.peek(task.payload_bytes))
        excluded, spares = (), ()
        if task.flags & wire.WITH_EXCLUDED:
            indices, excluded, spares = indices
        return BatchOrder(
            task.epoch, task.seq, task.position, task.attempt, task.part, task.parts, task.start, task.stop,
            task.rows, task.seed, task.pipe_seed, task.pull, indices, excluded, spares,
        )  # fmt: skip

    def _trim_if_asked(self) -> None:
        """Release caches, once for each number that the parent writes."""
        number = self._control[status_page.TRIM]
        if number in (0, self._trimmed):
            return
        self._trimmed = number
        row = self._row
        row[status_page.ROW] = status_page.NO_ROW
        row[status_page.W_EPOCH] = status_page.NO_EPOCH
        row[status_page.SINCE_NS] = _clock()
        # User code runs now: if it hangs, the status page shows it.
        row[status_page.PHASE] = status_page.WORKING
        try:
            self._arena.close()
            maker = self._maker
            trim.release_caches(maker.spec.dataset if maker is not None else None)
        finally:
            row[status_page.PHASE] = status_page.IDLE

    def _report_released_slots(self) -> None:
        """Report slots that nothing in this worker refers to any more."""
        still = []
        for index, slot in self._held:
            if slot.held():
                still.append((index, slot))
            else:
                self._send(wire.ResultKind.UNHELD, None, slot=index)
        self._held = still

    def _send(
        self,
        kind: wire.ResultKind,
        task: wire.TaskHeader | None,
        *,
        flags: int = 0,
        receipt: Any = None,
        shared_bytes: int = 0,
        spans: tuple[int, ...] = _NO_SPANS,
        slot: int = wire.NO_SLOT,
    ) -> None:
        worker = self._boot.worker
        if task is None:
            header = wire.pack_result(
                wire.VERSION, kind, flags, worker, 0, 0, 0, 0, slot, 0, wire.NO_SLOT, 0, 0, 0, 0, 0, *spans
            )
        else:
            at, root, size = (
                (receipt.root_offset, receipt.root_bytes, receipt.nbytes) if receipt else (0, 0, 0)
            )
            header = wire.pack_result(
                wire.VERSION, kind, flags, worker, task.epoch, task.seq, task.attempt, task.part,
                task.slot, task.slot_generation, task.scratch, task.scratch_generation, at, root, size,
                shared_bytes, *spans,
            )  # fmt: skip
        os.write(self._boot.result_fd, header)
