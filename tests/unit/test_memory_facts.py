"""Memory as the kernel accounts it, read from trees of files that look like those of several kernels and containers."""

from __future__ import annotations

from pathlib import Path

import pytest

from stoker._host import cgroup_memory as facts_module
from stoker._host.cgroup_memory import CgroupMemory, OomKills, available_bytes, cgroup_memory, oom_kills
from tests.unit.kernels import Files

GIB = 1 << 30
NO_LIMIT = "9223372036854771712\n"
"""What cgroup v1 writes where there is no limit."""


class Kernel(Files):
    def v2(self, path: str, limit: str, used: int, kills: int) -> None:
        events = f"low 0\nhigh 0\nmax 31\noom 7\noom_kill {kills}\noom_group_kill 0\n"
        self._write(path, {"memory.max": limit, "memory.current": f"{used}\n", "memory.events": events})

    def v1(self, path: str, limit: str, used: int, kills: int) -> None:
        control = f"oom_kill_disable 0\nunder_oom 0\noom_kill {kills}\n"
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.oom_control")
        self._write(f"memory/{path}", dict(zip(names, (limit, f"{used}\n", control), strict=True)))

    def _write(self, path: str, files: dict[str, str]) -> None:
        folder = self.sys / path.strip("/")
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text)

    def told(self) -> CgroupMemory:
        return cgroup_memory(sys=self.sys, proc=self.proc)


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    return Kernel(tmp_path)


def test_version_2(kernel: Kernel) -> None:
    kernel.belongs_to("0::/user.slice/job")
    kernel.v2("/user.slice/job", f"{8 * GIB}\n", GIB, 3)
    assert kernel.told() == CgroupMemory(8 * GIB, GIB, 3)


def test_version_1_beside_other_controllers(kernel: Kernel) -> None:
    kernel.belongs_to("5:cpu,cpuacct:/other", "4:hugetlb,memory:/docker/abc", "1:name=systemd:/x", "0::/")
    kernel.v1("/docker/abc", f"{2 * GIB}\n", GIB, 1)
    assert kernel.told() == CgroupMemory(2 * GIB, GIB, 1)


def test_the_tightest_limit_above_counts_with_its_own_use(kernel: Kernel) -> None:
    kernel.belongs_to("0::/a/b/c")
    kernel.v2("/a/b/c", f"{9 * GIB}\n", 1, 5)
    kernel.v2("/a/b", f"{4 * GIB}\n", 2, 6)
    kernel.v2("/a", "max\n", 3, 7)
    assert kernel.told() == CgroupMemory(4 * GIB, 2, 5)


@pytest.mark.parametrize("version", [1, 2])
def test_no_limit_is_none(kernel: Kernel, version: int) -> None:
    if version == 1:
        kernel.belongs_to("4:memory:/a")
        kernel.v1("/a", NO_LIMIT, 5, 0)
    else:
        kernel.belongs_to("0::/a")
        kernel.v2("/a", "max\n", 5, 0)
    assert kernel.told() == CgroupMemory(None, None, 0)


@pytest.mark.parametrize("path", ["/kubepods/pod1/deadbeef", "/../../deadbeef", "/"])
def test_a_container_that_sees_its_own_cgroup_as_the_root(kernel: Kernel, path: str) -> None:
    """The path is the host's; what can be read is at the root of the mount."""
    kernel.belongs_to(f"0::{path}")
    kernel.v2("/", f"{GIB}\n", 77, 2)
    assert kernel.told() == CgroupMemory(GIB, 77, 2)


def test_a_root_without_files_tells_nothing(kernel: Kernel) -> None:
    kernel.belongs_to("0::/")
    assert kernel.told() == CgroupMemory(None, None, None)


def test_no_proc_and_no_sys(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    assert cgroup_memory(sys=nowhere, proc=nowhere) == CgroupMemory(None, None, None)
    assert oom_kills(sys=nowhere, proc=nowhere) == OomKills(None, 0)
    assert available_bytes(proc=nowhere) is None


@pytest.mark.parametrize(
    "garbage",
    [b"", b"\n\n", b"nonsense\n", b"0\n", b"0:\n", b"::::\n", b"\xff\xfe:memory:/\xff\n", b"0::/\0x\n"],
)
def test_garbage_in_proc_raises_nothing(kernel: Kernel, garbage: bytes) -> None:
    (kernel.proc / "self" / "cgroup").write_bytes(garbage)
    kernel.told()


@pytest.mark.parametrize(
    "garbage", [b"", b"lots\n", b"-\n", b"oom_kill\n", b"oom_kill many\n", b"\xff\xfe\n"]
)
def test_garbage_in_the_files_is_not_known(kernel: Kernel, garbage: bytes) -> None:
    kernel.belongs_to("0::/a")
    kernel.v2("/a", "", 0, 0)
    for name in ("memory.max", "memory.current", "memory.events"):
        (kernel.sys / "a" / name).write_bytes(garbage)
    assert kernel.told() == CgroupMemory(None, None, None)


def test_a_kernel_that_counts_no_oom_kills(kernel: Kernel) -> None:
    """Before 4.13 memory.oom_control had no such line."""
    kernel.belongs_to("4:memory:/a")
    kernel.v1("/a", f"{GIB}\n", 5, 0)
    (kernel.sys / "memory" / "a" / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\n")
    assert kernel.told() == CgroupMemory(GIB, 5, None)


def test_kills_on_the_machine(kernel: Kernel) -> None:
    kernel.belongs_to("0::/a")
    kernel.v2("/a", "max\n", 0, 4)
    (kernel.proc / "vmstat").write_text("pgfault 12\noom_kill 9\ndrop_slab 0\n")
    assert oom_kills(sys=kernel.sys, proc=kernel.proc) == OomKills(4, 9)


def test_what_the_machine_could_still_give(kernel: Kernel) -> None:
    (kernel.proc / "meminfo").write_text("MemTotal:  100 kB\nMemFree: 1 kB\nMemAvailable:   40 kB\n")
    assert available_bytes(proc=kernel.proc) == 40 * 1024


def test_the_machine_it_runs_on_answers() -> None:
    """Whatever this kernel is: no error, and figures that can be."""
    facts = facts_module.cgroup_memory()
    assert facts.limit_bytes is None or facts.limit_bytes > 0
    assert facts_module.oom_kills().machine >= 0
