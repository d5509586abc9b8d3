"""The machine's facts, read from trees of files as kernels and containers have them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from stoker._host import environment, limits
from stoker._record.finding import size
from stoker._tools.doctor.facts.host.leftovers import Leftovers, left_over
from stoker._tools.doctor.facts.host.machine import MachineFacts, gather
from stoker._tools.doctor.facts.host.tmpdir import LONGEST_PATH_BYTES, SOCKET_BYTES, temporary_folder

_HOUR_S = 3600.0


class Tree:
    """A root folder with a /proc, a /sys and a /dev of our own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.proc = root / "proc"
        self.shm = root / "dev" / "shm"
        self.shm.mkdir(parents=True)
        (self.proc / "self").mkdir(parents=True)

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def process(self, pid: int, *, name: str = "python", maps: str = "", holds: str = "") -> None:
        self.write(f"proc/{pid}/comm", f"{name}\n")
        self.write(f"proc/{pid}/maps", maps)
        (self.proc / str(pid) / "fd").mkdir()
        if holds:
            (self.proc / str(pid) / "fd" / "3").symlink_to(holds)

    def file(self, name: str, nbytes: int = 4096) -> None:
        (self.shm / name).write_bytes(b"x" * nbytes)

    def left_over(self, *, later_s: float = _HOUR_S) -> Leftovers:
        """As it will be seen some time after the files were made."""
        newest_s = max((each.stat().st_ctime for each in self.shm.iterdir()), default=0.0)
        found = left_over(self.shm, self.proc, budget_s=60.0, now_s=newest_s + later_s)
        assert found is not None
        return found


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path / "root")


def test_all_of_a_container_with_64_mb_of_shared_memory(tree: Tree) -> None:
    tree.write("proc/self/cgroup", "0::/\n")
    tree.write(
        "proc/meminfo",
        "MemTotal: 8000000 kB\nMemAvailable: 4000000 kB\nSwapTotal: 2048 kB\nSwapFree: 1024 kB\n"
        "CommitLimit: 4096 kB\nCommitted_AS: 512 kB\nHugePages_Total: 3\n",
    )
    tree.write(
        "proc/self/limits",
        "Limit  Soft Limit  Hard Limit  Units\n"
        "Max processes             unlimited            unlimited            processes\n"
        "Max open files            1024                 524288               files\n",
    )
    tree.write("proc/sys/vm/max_map_count", "65530\n")
    tree.write("proc/sys/vm/overcommit_memory", "2\n")
    tree.write("proc/self/maps", "a\nb\nc\n")
    tree.write(
        "proc/self/mountinfo",
        "1 2 0:1 / / rw - overlay overlay rw\n"
        "3 1 0:2 / /dev/shm rw,nosuid shared:9 - tmpfs shm rw,size=65536k\n",
    )
    tree.write(".dockerenv", "")
    for name in ("memory.max", "memory.current"):
        tree.write(f"sys/fs/cgroup/{name}", f"{2 << 30 if name == 'memory.max' else 1 << 30}\n")
    tree.write("sys/fs/cgroup/cpu.max", "150000 100000\n")
    tree.write("sys/fs/cgroup/cpu.stat", "nr_periods 100\nnr_throttled 40\nthrottled_usec 2500000\n")
    tree.write("sys/fs/cgroup/pids.max", "100\n")
    tree.write("sys/fs/cgroup/pids.current", "93\n")
    (tree.proc / "self" / "fd").mkdir()
    for number in range(4):
        (tree.proc / "self" / "fd" / str(number)).touch()

    found = gather(
        root=tree.root, environ={"OMP_NUM_THREADS": "4", "OPENCV_FOR_THREADS_NUM": "2", "HOME": "/"}
    )

    assert found.cpus is not None
    assert (found.cpus.quota, found.cpus.usable) == (1.5, 1)
    assert (found.quota_periods, found.throttled_periods, found.throttled_s) == (100, 40, 2.5)
    assert (found.memory_bytes, found.available_bytes) == (2 << 30, 1 << 30)
    assert (found.cgroup_limit_bytes, found.cgroup_used_bytes) == (2 << 30, 1 << 30)
    assert (found.swap_bytes, found.swap_free_bytes) == (2 << 20, 1 << 20)
    assert (found.overcommit, found.commit_limit_bytes, found.committed_bytes) == (2, 4 << 20, 512 << 10)
    assert (found.descriptors, found.descriptors_hard, found.descriptors_open) == (1024, 524288, 3)
    assert (found.max_maps, found.maps) == (65530, 3)
    assert found.processes == (1 << 63) - 1
    assert (found.pids_limit, found.pids_now) == (100, 93)
    assert (found.shm_type, found.shm_shared, found.container) == ("tmpfs", False, "docker")
    assert found.shm_bytes is not None
    assert found.thread_variables == {"OMP_NUM_THREADS": "4", "OPENCV_FOR_THREADS_NUM": "2"}
    assert found.versions["torch"]
    assert found.leftovers == Leftovers(0, 0, 0.0, (), ())


def test_a_machine_that_tells_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "resource", None)  # as on Windows
    monkeypatch.delattr(os, "statvfs")
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.delattr(os, "geteuid")
    found = gather(root=tmp_path / "nothing", environ={})
    told = {
        "cpus", "memory_bytes", "available_bytes", "tmpdir", "thread_variables", "system", "container", "gil", "versions"
    }  # fmt: skip
    silent = [name for name in MachineFacts.__dataclass_fields__ if name not in told]
    assert [name for name in silent if getattr(found, name) is not None] == []


def test_the_real_machine_is_read_without_torch(tmp_path: Path) -> None:
    found = gather()
    assert found.cpus is not None
    assert found.cpus.usable >= 1
    assert found.descriptors_open is not None
    assert found.descriptors_open > 2
    assert found.tmpdir is not None


def test_what_a_dead_process_left(tree: Tree) -> None:
    tree.file("torch_77_123_0", 8192)
    tree.file("__KMP_REGISTERED_LIB_78_0")
    tree.file("sem.loky-79-abc")
    tree.file("sem.mp-aaaa")
    tree.file("psm_bbbb")
    found = tree.left_over()
    assert found.count == 5
    assert found.names[0] == "torch_77_123_0"
    assert found.kinds == ("__KMP_REGISTERED_LIB_", "psm_", "sem.loky-", "sem.mp-", "torch_")
    assert found.total_bytes >= 8192
    assert found.oldest_s == pytest.approx(_HOUR_S, abs=5)


def test_what_is_in_use_or_might_be_is_not_left_over(tree: Tree) -> None:
    tree.file("torch_10_1_0")  # its maker lives
    tree.file("torch_77_2_0")  # its maker is dead, another process maps it
    tree.file("sem.mp-mapped")
    tree.file("psm_open")
    tree.file("somebody_else")
    (tree.shm / "torch_88_folder").mkdir()
    mapped = "7f00-7f01 rw-s 00000000 00:19 2 /dev/shm/torch_77_2_0\n7f02-7f03 rw-s 0 00:19 3 /dev/shm/sem.mp-mapped\n"
    tree.process(10, maps=mapped, holds="/dev/shm/psm_open")
    assert tree.left_over() == Leftovers(0, 0, 0.0, (), ())


def test_new_files_are_not_left_over(tree: Tree) -> None:
    tree.file("torch_77_2_0")
    tree.file("psm_kept")
    assert tree.left_over(later_s=30).count == 0
    assert tree.left_over(later_s=90).names == ("torch_77_2_0",)


def test_files_of_others_are_not_ours(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.file("torch_77_2_0")
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert tree.left_over().count == 0


def test_the_manager_of_shared_files_cleans_up_by_itself(tree: Tree) -> None:
    tree.file("torch_77_2_0")
    tree.file("sem.mp-aaaa")
    tree.process(10, name="torch_shm_manag")
    assert tree.left_over().names == ("sem.mp-aaaa",)


def test_a_process_that_hides_leaves_it_undecided(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.file("torch_77_2_0")
    tree.process(10)
    denied = {str(tree.proc / "10" / "maps")}
    read = Path.read_text

    def refuse(path: Path, **options: str) -> str:
        if str(path) in denied:
            raise PermissionError
        return read(path, **options)

    monkeypatch.setattr(Path, "read_text", refuse)
    assert tree.left_over() == Leftovers(0, 0, 0.0, (), (), undecided=1)
    late = left_over(tree.shm, tree.proc, budget_s=-1.0, now_s=tree.shm.stat().st_ctime + _HOUR_S)
    assert late is not None
    assert late.undecided == 1


def test_the_folder_for_temporary_files(tmp_path: Path) -> None:
    there = temporary_folder({"TMPDIR": str(tmp_path)})
    assert (there.path, there.variable, there.exists, there.writable) == (str(tmp_path), "TMPDIR", True, True)
    assert there.used == str(tmp_path)
    assert there.length_bytes == len(str(tmp_path))
    gone = temporary_folder({"TMPDIR": str(tmp_path / "gone"), "TMP": str(tmp_path)})
    assert (gone.exists, gone.writable, gone.free_bytes, gone.used) == (False, False, None, str(tmp_path))
    assert temporary_folder({}).variable == ""
    assert LONGEST_PATH_BYTES - SOCKET_BYTES == 75


@pytest.mark.parametrize(
    ("line", "source", "kind"),
    [
        ("3 1 0:2 / /dev/shm rw - tmpfs tmpfs rw", "tmpfs", "tmpfs"),
        ("3 1 0:2 / /dev/shm rw shared:1 master:2 - tmpfs shm rw", "shm", "tmpfs"),
        ("1 2 0:1 / / rw - overlay overlay rw", "", ""),
    ],
)
def test_what_is_mounted(tree: Tree, line: str, source: str, kind: str) -> None:
    assert environment.shm_mount(tree.proc) is None
    tree.write("proc/self/mountinfo", line + "\n")
    assert environment.shm_mount(tree.proc) == (kind, source)


@pytest.mark.parametrize(
    ("source", "container", "shared"),
    [
        ("shm", "docker", False),
        ("tmpfs", "docker", True),
        ("shm", "kubernetes", True),
        ("tmpfs", None, False),
    ],
)
def test_who_else_may_use_shared_memory(source: str, container: str | None, shared: bool) -> None:
    assert environment.is_shared(environment.Mount("tmpfs", source), container) is shared


@pytest.mark.parametrize(
    ("cgroup", "environ", "kind"),
    [
        ("0::/kubepods/burstable/pod1/x\n", {}, "kubernetes"),
        ("4:memory:/docker/abc\n", {}, "docker"),
        ("0::/user.slice/user-1000.slice\n", {}, None),
        ("0::/\n", {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"),
    ],
)
def test_containers(tree: Tree, cgroup: str, environ: dict[str, str], kind: str | None) -> None:
    tree.write("proc/self/cgroup", cgroup)
    assert environment.container(tree.root, environ) == kind


def test_the_tightest_limit_of_tasks(tree: Tree) -> None:
    tree.write("proc/self/cgroup", "0::/a/b\n")
    tree.write("sys/fs/cgroup/a/b/pids.max", "max\n")
    tree.write("sys/fs/cgroup/a/pids.max", "50\n")
    tree.write("sys/fs/cgroup/a/pids.current", "40\n")
    assert limits.pids(tree.root / "sys/fs/cgroup", tree.proc) == (50, 40)


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1 << 20, "1 MiB"),
        (1000 << 20, "1000 MiB"),
        (3 << 29, "1.5 GiB"),
    ],
)
def test_sizes(nbytes: int, text: str) -> None:
    assert size(nbytes) == text
