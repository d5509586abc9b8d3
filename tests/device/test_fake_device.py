"""The fake accelerator keeps the rules of CUDA: memory, streams, events, pinned and registered memory, failures, forks."""

from __future__ import annotations

import ctypes
import faulthandler
import mmap
import os
import re
import signal
from collections.abc import Callable

import pytest
import torch

from tests.fake_device import NAME

FAR_S = 1000.0
"""A delay that never passes."""


def page_aligned(size_bytes: int) -> tuple[mmap.mmap, torch.Tensor]:
    """Shared memory that torch does not know, and a tensor over it."""
    memory = mmap.mmap(-1, size_bytes)
    return memory, torch.frombuffer(memory, dtype=torch.uint8)


def copied(source: torch.Tensor, stream: torch.Stream) -> tuple[torch.Tensor, torch.Event]:
    """A copy of host memory that was begun on a stream, and its event."""
    event = torch.Event(NAME)
    with stream:
        target = source.to(NAME, non_blocking=True)
        event.record(stream)
    return target, event


def test_torch_knows_the_device(fake):
    assert torch.accelerator.current_accelerator() == torch.device(NAME)
    assert torch.accelerator.is_available()
    assert torch.accelerator.device_count() == 2
    assert torch.empty(3, device=NAME).device == torch.device(NAME, 0)
    with torch.device(NAME):
        assert torch.empty(3).device.type == NAME


@pytest.mark.parametrize(
    "dtype", [torch.uint8, torch.float32, torch.int64, torch.bool, torch.bfloat16, torch.complex64]
)
def test_tensors_go_there_and_back(fake, dtype):
    tensor = torch.arange(24).reshape(2, 3, 4).to(dtype)
    for view in (
        tensor,
        tensor.transpose(0, 2),
        tensor[:, 1:],
        tensor[0, 0, 0],
        tensor[:0],
        tensor[:, :1].expand(2, 3, 4),
    ):
        there = view.to(NAME)
        assert there.device.type == NAME
        assert torch.equal(there.cpu(), view)
        assert torch.equal(
            there.transpose(0, -1).cpu() if there.dim() else there.cpu(),
            view.transpose(0, -1) if view.dim() else view,
        )
    assert torch.equal(tensor.to(NAME).to(torch.float64, copy=True).cpu(), tensor.to(torch.float64))


def test_views_of_bytes_keep_strides_and_share_memory(fake):
    whole = torch.arange(64, dtype=torch.uint8)
    buffer = whole.to(NAME)
    part = buffer[8:40].view(torch.int32).as_strided((2, 3), (4, 1), 3)
    expected = whole[8:40].view(torch.int32).as_strided((2, 3), (4, 1), 3)
    assert part.stride() == (4, 1)
    assert torch.equal(part.cpu(), expected)
    part.zero_()
    expected.zero_()
    assert torch.equal(buffer.cpu(), whole)


def test_other_operators_run(fake):
    layer = torch.nn.Linear(4, 2).to(NAME)
    loss = layer(torch.ones(3, 4, device=NAME)).sum()
    loss.backward()
    assert layer.bias.grad is not None
    assert torch.equal(layer.bias.grad.cpu(), torch.full((2,), 3.0))


def test_the_cpu_cannot_read_its_memory(fake):
    tensor = torch.zeros(8, device=NAME)
    pid = os.fork()
    if pid == 0:
        faulthandler.disable()
        ctypes.string_at(tensor.data_ptr(), 1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGSEGV


def test_fresh_and_freed_memory_are_poisoned(fake):
    fresh = torch.empty(100, dtype=torch.uint8, device=NAME)
    assert fresh.cpu().tolist() == [0xCD] * 100
    fresh.fill_(7)
    address = fresh.data_ptr()
    del fresh
    again = torch.empty(100, dtype=torch.uint8, device=NAME)
    assert again.data_ptr() == address
    assert again.cpu().tolist() == [0xDF] * 100


def test_a_copy_from_pinned_memory_reads_it_late(fake):
    fake.order("late", delay_s=FAR_S)
    source = torch.ones(1000).pin_memory()
    assert source.is_pinned()
    target, event = copied(source, torch.Stream(NAME))
    assert not event.query()
    source.fill_(2)
    event.synchronize()
    assert event.query()
    assert set(target.cpu().tolist()) == {2.0}


def test_pinned_memory_that_was_dropped_is_kept_for_its_copy(fake):
    fake.order("late", delay_s=FAR_S)
    source = torch.ones(1000).pin_memory()
    target, event = copied(source, torch.Stream(NAME))
    address = source.data_ptr()
    del source
    others = [torch.zeros(1000).pin_memory() for _ in range(3)]
    assert address not in {other.data_ptr() for other in others}
    event.synchronize()
    assert set(target.cpu().tolist()) == {1.0}
    assert torch.zeros(1000).pin_memory().data_ptr() == address


def test_a_copy_from_pageable_memory_is_done_when_it_returns(fake):
    fake.order("late", delay_s=FAR_S)
    source = torch.ones(1000)
    target, event = copied(source, torch.Stream(NAME))
    source.fill_(2)
    event.synchronize()
    assert set(target.cpu().tolist()) == {1.0}
    assert fake.counters().pageable_copies == 2  # and the one back


@pytest.mark.parametrize("how", ["queries", "delay", "stream", "device", "stream queries"])
def test_all_that_makes_a_copy_happen(fake, how):
    fake.order("late", delay_s=0.05 if how == "delay" else FAR_S, queries=5)
    stream = torch.Stream(NAME)
    _, event = copied(torch.ones(10).pin_memory(), stream)
    if how == "stream":
        stream.synchronize()
    elif how == "device":
        torch.accelerator.synchronize()
    elif how == "stream queries":
        while not stream.query():
            pass
    elif how == "queries":
        assert [event.query() for _ in range(4)] == [False] * 4
    while not event.query():
        pass
    assert fake.counters().in_flight == 0


def test_a_stream_that_waits_for_an_event_makes_its_copy_happen(fake):
    fake.order("late", delay_s=FAR_S)
    target, event = copied(torch.ones(10).pin_memory(), torch.Stream(NAME))
    other = torch.Stream(NAME)
    with other:
        event.wait(other)
        assert target.cpu().tolist() == [1.0] * 10


def test_a_stream_that_does_not_wait_sees_poison(fake):
    fake.order("late", delay_s=FAR_S)
    target, event = copied(torch.ones(10).pin_memory(), torch.Stream(NAME))
    assert set(target.view(torch.uint8).cpu().tolist()) == {0xCD}
    event.synchronize()


def test_the_current_stream_belongs_to_the_thread(fake):
    stream = torch.Stream(NAME)
    before = torch.accelerator.current_stream()
    with stream:
        assert torch.accelerator.current_stream() == stream
    assert torch.accelerator.current_stream() == before
    torch.accelerator.set_stream(stream)
    assert torch.accelerator.current_stream() == stream


def test_a_block_goes_to_its_own_stream_only(fake):
    stream = torch.Stream(NAME)
    with stream:
        address = torch.empty(5000, device=NAME).data_ptr()
    assert torch.empty(5000, device=NAME).data_ptr() != address
    with stream:
        assert torch.empty(5000, device=NAME).data_ptr() == address


def test_a_recorded_block_waits_for_the_streams_that_use_it(fake):
    fake.order("late", delay_s=FAR_S)
    stream = torch.Stream(NAME)
    with stream:
        block = torch.empty(5000, device=NAME)
        address = block.data_ptr()
    consumer = torch.accelerator.current_stream()
    fake.occupy(0)
    block.record_stream(consumer)
    del block
    assert fake.counters().deferred_blocks == 1
    with stream:
        assert torch.empty(5000, device=NAME).data_ptr() != address
        consumer.synchronize()
        other = torch.empty(5000, device=NAME)
        assert torch.empty(5000, device=NAME).data_ptr() == address or other.data_ptr() == address
    assert fake.counters().deferred_blocks == 0


def test_two_devices_have_their_own_streams(fake):
    torch.accelerator.set_device_index(1)
    tensor = torch.ones(3, device=NAME)
    assert tensor.device.index == 1
    assert torch.accelerator.current_stream().device.index == 1
    assert torch.equal(tensor.to(torch.device(NAME, 0)).cpu(), torch.ones(3))
    with pytest.raises(RuntimeError, match="invalid device ordinal 2"):
        torch.empty(1, device=torch.device(NAME, 2))


def test_a_checksum_is_the_same_on_both_sides_and_asynchronous(fake):
    fake.order("late", delay_s=FAR_S)
    tensor = torch.randn(7, 9)
    there = tensor.to(NAME)
    before = fake.counters().in_flight
    sums = [fake.checksum(there), fake.checksum(there.t()), fake.checksum(there[:, 2:4])]
    assert fake.counters().in_flight == before + 3
    expected = [fake.checksum(tensor), fake.checksum(tensor.t()), fake.checksum(tensor[:, 2:4])]
    assert [one.item() for one in sums] == [one.item() for one in expected]
    tensor[3, 3] += 1
    assert fake.checksum(tensor).item() != expected[0].item()


def test_registered_memory_is_pinned_memory_that_torch_does_not_track(fake):
    fake.order("late", delay_s=FAR_S)
    memory, tensor = page_aligned(8192)
    tensor.fill_(1)
    assert not tensor.is_pinned()
    assert fake.register_host(tensor.data_ptr(), 8192) == 0
    assert tensor.is_pinned()
    assert tensor[100:].is_pinned()
    assert fake.registered() == [(tensor.data_ptr(), 8192)]
    target, event = copied(tensor, torch.Stream(NAME))
    tensor.fill_(2)
    event.synchronize()
    assert set(target.cpu().tolist()) == {2}
    assert fake.unregister_host(tensor.data_ptr()) == 0
    assert not tensor.is_pinned()
    assert fake.counters().registrations == fake.counters().registered_bytes == 0
    del tensor
    memory.close()


def test_registering_twice_is_an_error(careless):
    _, tensor = page_aligned(8192)
    assert careless.register_host(tensor.data_ptr(), 8192) == 0
    assert careless.register_host(tensor.data_ptr() + 4096, 4096) == 712
    assert re.match("registered twice: 4096 bytes", careless.violations()[0])
    assert careless.unregister_host(tensor.data_ptr() + 4096) == 713
    assert careless.error_string(713) == "the memory is not registered"


def test_unregistering_in_flight_is_an_error(careless):
    careless.order("late", delay_s=FAR_S)
    _, tensor = page_aligned(8192)
    careless.register_host(tensor.data_ptr(), 8192)
    _, event = copied(tensor, torch.Stream(NAME))
    assert careless.unregister_host(tensor.data_ptr()) == 600
    assert "unregistered while 1 copies use it" in careless.violations()[0]
    event.synchronize()
    assert careless.unregister_host(tensor.data_ptr()) == 0


def test_unmapping_registered_memory_is_noticed(careless):
    careless.order("late", delay_s=FAR_S)
    memory, tensor = page_aligned(8192)
    careless.register_host(tensor.data_ptr(), 8192)
    target, event = copied(tensor, torch.Stream(NAME))
    address = tensor.data_ptr()
    assert ctypes.CDLL(None).munmap(ctypes.c_void_p(address), ctypes.c_size_t(8192)) == 0
    event.synchronize()
    assert "a copy used registered memory that is unmapped" in careless.violations()[0]
    assert set(target.cpu().tolist()) == {0xCD}
    # Put something there again: the mmap object unmaps it when it is closed.
    mapped = ctypes.CDLL(None).mmap
    mapped.restype = ctypes.c_void_p
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x10  # at exactly this address
    assert mapped(ctypes.c_void_p(address), ctypes.c_size_t(8192), 3, flags, -1, 0) == address
    assert any(
        re.search("was replaced by another mapping|is trimmed", text) for text in careless.violations()
    )
    del tensor
    memory.close()


def test_trimming_registered_memory_is_noticed(careless):
    fd = os.memfd_create("slot")
    os.ftruncate(fd, 8192)
    memory = mmap.mmap(fd, 8192)
    tensor = torch.frombuffer(memory, dtype=torch.uint8)
    careless.register_host(tensor.data_ptr(), 8192)
    punch_and_keep_size = 3
    libc = ctypes.CDLL(None)
    assert libc.fallocate(fd, punch_and_keep_size, ctypes.c_long(0), ctypes.c_long(8192)) == 0
    assert any("is trimmed" in text for text in careless.violations())
    os.close(fd)
    del tensor
    memory.close()


def test_a_copy_across_two_registrations_is_an_error(fake):
    _, tensor = page_aligned(8192)
    fake.register_host(tensor.data_ptr(), 4096)
    fake.register_host(tensor.data_ptr() + 4096, 4096)
    with pytest.raises(RuntimeError, match="runs past the end of the registered memory"):
        tensor.to(NAME, non_blocking=True)
    for address, _ in fake.registered():
        assert fake.unregister_host(address) == 0


def test_failures_are_injected(fake):
    _, tensor = page_aligned(4096)
    fake.fail_registrations(1)
    assert fake.register_host(tensor.data_ptr(), 4096) == 304
    assert fake.register_host(tensor.data_ptr(), 4096) == 0
    assert fake.unregister_host(tensor.data_ptr()) == 0
    fake.fail_pinning(1)
    with pytest.raises(RuntimeError, match="page-locked memory is refused"):
        torch.ones(3).pin_memory()
    assert torch.ones(3).pin_memory().is_pinned()
    fake.limit_memory(1 << 20)
    cached = torch.empty(1 << 19, dtype=torch.uint8, device=NAME)
    del cached
    whole = torch.empty(1 << 20, dtype=torch.uint8, device=NAME)  # what was cached is given back first
    with pytest.raises(torch.OutOfMemoryError, match="1048576 are in use, the limit is 1048576"):
        torch.empty(1, device=NAME)
    del whole
    counters = fake.counters()
    assert (counters.registrations_failed, counters.pinnings_failed, counters.allocations_failed) == (1, 1, 1)


def test_a_lost_device_raises_at_every_use_and_hangs_nowhere(fake):
    fake.order("late", delay_s=FAR_S)
    stream = torch.Stream(NAME)
    source = torch.ones(10).pin_memory()
    fake.lose(after_copies=2)
    targets = [copied(source, stream) for _ in range(3)]
    uses: list[Callable[[], object]] = [
        targets[2][1].synchronize,
        targets[2][1].query,
        lambda: torch.empty(3, device=NAME),
        lambda: source.to(NAME, non_blocking=True),
        lambda: targets[0][0].cpu(),
        torch.accelerator.synchronize,
        lambda: torch.Stream(NAME),
        lambda: fake.occupy(1),
    ]
    for use in uses:
        with pytest.raises(torch.AcceleratorError, match="the device is lost"):
            use()
    assert fake.counters().in_flight == 0


def test_a_forked_child_cannot_use_it(fake):
    tensor, event = copied(torch.ones(10).pin_memory(), torch.Stream(NAME))
    pinned = torch.ones(3).pin_memory()
    uses: list[Callable[[], object]] = [
        lambda: torch.empty(3, device=NAME),
        tensor.cpu,
        event.query,
        event.synchronize,
        lambda: torch.Stream(NAME),
        torch.accelerator.synchronize,
        torch.accelerator.current_stream,
        torch.ones(3).pin_memory,
        lambda: fake.occupy(1),
    ]
    pid = os.fork()
    if pid == 0:
        errors = 0
        for use in uses:
            try:
                use()
            except RuntimeError as error:
                errors += "Cannot use fakeaccel in a forked child" in str(error)
        torch.manual_seed(1)
        errors += not pinned.is_pinned()
        tensor = event = pinned = None  # type: ignore[assignment]
        os._exit(errors)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == len(uses) + 1
    event.synchronize()
    assert tensor.cpu().tolist() == [1.0] * 10


def test_timed_copies_share_one_engine(fake):
    fake.timed(bytes_per_s=1e9)
    source = torch.ones(1_000_000, dtype=torch.uint8).pin_memory()
    begin, end = torch.Event(NAME, enable_timing=True), torch.Event(NAME, enable_timing=True)
    begin.record()
    begin.synchronize()  # its stream may be late, and the copies do not wait for it
    targets = [copied(source, torch.Stream(NAME)) for _ in range(3)]
    for _, event in targets:
        event.wait()
    end.record()
    end.synchronize()
    assert begin.elapsed_time(end) >= 3.0  # the device's own clock: no copy may be faster than its engine
    assert all(set(target.cpu().tolist()) == {1} for target, _ in targets)


def test_a_timed_kernel_occupies_its_stream_and_no_other(fake):
    fake.timed()
    kernels, copies = torch.Stream(NAME), torch.Stream(NAME)
    with kernels:
        fake.occupy(200)
    target, event = copied(torch.ones(10).pin_memory(), copies)
    event.synchronize()
    assert not kernels.query()
    kernels.synchronize()
    assert fake.counters().kernels == 1
    assert target.cpu().tolist() == [1.0] * 10
