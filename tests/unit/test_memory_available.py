"""What can still be taken, read from trees of files that look like those of several kernels."""

from __future__ import annotations

from pathlib import Path

import pytest

from stoker._host.memory_available import Gauge, MemoryAvailable, room_bytes

GIB = 1 << 30


class Kernel:
    """A /proc and a /sys/fs/cgroup of our own: a machine of 64 GiB of which 40 are available."""

    def __init__(self, folder: Path) -> None:
        self.sys = folder / "sys"
        self.proc = folder / "proc"
        (self.proc / "self").mkdir(parents=True)
        self.machine(64, 40)

    def machine(self, total_gib: int, available_gib: int) -> None:
        text = f"MemTotal: {total_gib << 20} kB\nMemFree: 1 kB\nMemAvailable: {available_gib << 20} kB\n"
        (self.proc / "meminfo").write_text(text)

    def group(self, line: str, folder: str, **files: object) -> None:
        (self.proc / "self" / "cgroup").write_text(f"{line}\n")
        path = self.sys / folder
        path.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (path / name.replace("memory_", "memory.")).write_text(f"{text}\n")

    def gauge(self) -> Gauge:
        return Gauge(sys=self.sys, proc=self.proc)


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    return Kernel(tmp_path)


def test_a_machine_without_cgroups(kernel: Kernel) -> None:
    assert kernel.gauge().read() == MemoryAvailable(40 * GIB, 64 * GIB)


def test_version_2_counts_files_that_can_be_dropped(kernel: Kernel) -> None:
    stat = f"anon {GIB}\ninactive_file {2 * GIB}\nactive_file {GIB}\nslab_reclaimable {GIB}"
    kernel.group("0::/a", "a", memory_max=8 * GIB, memory_current=7 * GIB, memory_stat=stat)
    assert kernel.gauge().read() == MemoryAvailable(4 * GIB, 8 * GIB)


def test_version_2_throttles_before_it_kills(kernel: Kernel) -> None:
    kernel.group("0::/a", "a", memory_max="max", memory_high=4 * GIB, memory_current=3 * GIB, memory_stat="")
    assert kernel.gauge().read() == MemoryAvailable(GIB, 4 * GIB)


def test_version_1_counts_the_groups_below_it(kernel: Kernel) -> None:
    stat = f"inactive_file 0\nactive_file 0\ntotal_inactive_file {GIB}\ntotal_active_file {2 * GIB}"
    files = {"memory_limit_in_bytes": 8 * GIB, "memory_usage_in_bytes": 6 * GIB, "memory_stat": stat}
    kernel.group("4:cpu,memory:/a", "memory/a", **files)
    assert kernel.gauge().read() == MemoryAvailable(4 * GIB, 8 * GIB)


def test_the_tightest_counts_and_every_reading_is_new(kernel: Kernel) -> None:
    kernel.group("0::/a/b", "a", memory_max=32 * GIB, memory_current=4 * GIB, memory_stat="")
    kernel.group("0::/a/b", "a/b", memory_max=16 * GIB, memory_current=GIB, memory_stat="")
    gauge = kernel.gauge()
    assert gauge.read() == MemoryAvailable(15 * GIB, 16 * GIB)
    (kernel.sys / "a" / "memory.current").write_text(str(31 * GIB))
    assert gauge.read() == MemoryAvailable(GIB, 32 * GIB)
    (kernel.sys / "a" / "memory.current").write_text(str(33 * GIB))
    assert gauge.read() == MemoryAvailable(0, 32 * GIB), "over the limit is nothing, not less"
    kernel.group("0::/a/b", "a", memory_max="max")
    kernel.machine(64, 2)
    assert gauge.read() == MemoryAvailable(2 * GIB, 64 * GIB)


def test_no_limit_is_none(kernel: Kernel) -> None:
    files = {"memory_limit_in_bytes": 9223372036854771712, "memory_usage_in_bytes": GIB}
    kernel.group("4:memory:/a", "memory/a", **files)
    assert kernel.gauge().read() == MemoryAvailable(40 * GIB, 64 * GIB)


@pytest.mark.parametrize("garbage", ["", "lots", "-5", "memory 4 x"])
def test_garbage_raises_nothing(kernel: Kernel, garbage: str) -> None:
    files = dict.fromkeys(("memory_max", "memory_high", "memory_current", "memory_stat"), garbage)
    kernel.group("0::/a", "a", **files)
    available, total = kernel.gauge().read()
    assert available is not None
    assert total is not None
    assert 0 <= available <= total


def test_the_machine_it_runs_on_answers() -> None:
    assert (room_bytes() or 0) > 0
