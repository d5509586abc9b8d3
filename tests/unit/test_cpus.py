"""How many CPUs a process may count on, read from trees of files as several kernels and containers have them."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

import stoker.loader
from stoker import DataLoader
from stoker._host import cgroups
from stoker._host.cpus import Cpus, cpu_quota, cpus
from stoker._host.local_ranks import local_ranks
from tests.unit.kernels import Files


class Kernel(Files):
    def v2(self, path: str, quota: str) -> None:
        self._write(path, {"cpu.max": f"{quota}\n"})

    def v1(self, path: str, quota_us: int, period_us: int = 100_000) -> None:
        self._write(path, {"cpu.cfs_quota_us": f"{quota_us}\n", "cpu.cfs_period_us": f"{period_us}\n"})

    def _write(self, path: str, files: dict[str, str]) -> None:
        folder = self.sys / path.strip("/")
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text)

    def quota(self) -> float | None:
        return cpu_quota(sys=self.sys, proc=self.proc)

    def told(self, machine: int, affinity: int, ranks: int = 1) -> Cpus:
        environ = {"LOCAL_WORLD_SIZE": str(ranks)} if ranks > 1 else {}
        return cpus(environ=environ, machine=machine, affinity=affinity, sys=self.sys, proc=self.proc)


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    return Kernel(tmp_path)


def test_the_tightest_quota_of_all_levels(kernel: Kernel) -> None:
    kernel.belongs_to("0::/a/b/c/d")
    kernel.v2("/a/b/c/d", "max 100000")
    kernel.v2("/a/b/c", "800000 100000")
    kernel.v2("/a/b", "175000 50000")
    kernel.v2("/a", "900000 100000")
    assert kernel.quota() == 3.5


@pytest.mark.parametrize("mount", ["cpu", "cpu,cpuacct"])
def test_version_1_beside_other_controllers(kernel: Kernel, mount: str) -> None:
    kernel.belongs_to("5:cpu,cpuacct:/docker/abc", "4:memory:/other", "0::/")
    kernel.v1(f"{mount}/docker/abc", 250_000)
    kernel.v1(f"{mount}/docker", -1)
    assert kernel.quota() == 2.5


def test_a_container_that_sees_its_own_cgroup_as_the_root(kernel: Kernel) -> None:
    kernel.belongs_to("0::/kubepods/pod1/deadbeef")
    kernel.v2("/", "400000 100000")
    assert kernel.quota() == 4


@pytest.mark.parametrize(
    "text", ["max 100000", "", "0 100000", "lots", "100000", "-1 100000", "5 0", "nan 1", "9 9 9", "inf 1"]
)
def test_no_quota(kernel: Kernel, text: str) -> None:
    kernel.belongs_to("0::/a")
    kernel.v2("/a", text)
    assert kernel.quota() is None
    assert kernel.told(8, 8).usable == 8


@pytest.mark.parametrize("error", [PermissionError, OSError])
def test_folders_that_may_not_be_looked_at(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch, error: type[OSError]
) -> None:
    """``Path.is_dir`` raises then. Here the way down ends at /a; what is above it is still read."""
    kernel.belongs_to(f"0::/a/{'b' * 300}")
    kernel.v2("/", "300000 100000")
    assert kernel.quota() == 3.0  # no file system has such names

    def forbidden(path: Path) -> bool:
        if "a" in path.relative_to(kernel.sys).parts:
            raise error(13, "Permission denied")
        return True

    monkeypatch.setattr(Path, "is_dir", forbidden)
    assert kernel.quota() == 3.0


def test_nothing_told_at_all(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    assert cpu_quota(sys=nowhere, proc=nowhere) is None
    assert list(cgroups.folders("cpu", sys=nowhere, proc=nowhere)) == []


TABLE = [
    # machine, affinity, quota, ranks, usable, why
    (8, 8, None, 1, 8, "this machine has 8 CPUs"),
    (64, 16, None, 1, 16, "this process may run on 16 of 64 CPUs"),
    (192, 192, None, 8, 24, "this machine has 192 CPUs, divided by 8 local ranks (LOCAL_WORLD_SIZE)"),
    (
        192,
        24,
        None,
        8,
        24,
        "this process may run on 24 of 192 CPUs, its own share beside 8 local ranks (LOCAL_WORLD_SIZE)",
    ),
    (
        192,
        96,
        None,
        8,
        12,
        "this process may run on 96 of 192 CPUs, divided by 8 local ranks (LOCAL_WORLD_SIZE)",
    ),
    (64, 64, "350000 100000", 1, 3, "the cgroup's quota is 3.5 CPUs"),
    (
        64,
        64,
        "1200000 100000",
        8,
        1,
        "the cgroup's quota is 12 CPUs, divided by 8 local ranks (LOCAL_WORLD_SIZE)",
    ),
    (
        64,
        8,
        "3200000 100000",
        8,
        4,
        "the cgroup's quota is 32 CPUs, divided by 8 local ranks (LOCAL_WORLD_SIZE)",
    ),
    (64, 4, "800000 100000", 1, 4, "this process may run on 4 of 64 CPUs"),
    (64, 64, "20000 100000", 1, 1, "the cgroup's quota is 0.2 CPUs"),
    (2, 2, None, 8, 1, "this machine has 2 CPUs, divided by 8 local ranks (LOCAL_WORLD_SIZE)"),
    (10, 10, None, 3, 3, "this machine has 10 CPUs, divided by 3 local ranks (LOCAL_WORLD_SIZE)"),
]


@pytest.mark.parametrize(("machine", "affinity", "quota", "ranks", "usable", "why"), TABLE)
def test_the_arithmetic(
    kernel: Kernel, machine: int, affinity: int, quota: str | None, ranks: int, usable: int, why: str
) -> None:
    kernel.belongs_to("0::/job")
    if quota is not None:
        kernel.v2("/job", quota)
    found = kernel.told(machine, affinity, ranks)
    assert (found.usable, found.reason) == (usable, why)
    assert (found.machine, found.affinity, found.ranks) == (machine, affinity, ranks)
    assert (found.quota is None) == (quota is None)


def test_the_machine_it_runs_on_answers() -> None:
    found = cpus(environ={})
    assert 1 <= found.usable <= found.affinity <= found.machine


@pytest.mark.parametrize(
    ("environ", "ranks"),
    [
        ({}, (1, "")),
        ({"LOCAL_WORLD_SIZE": "4"}, (4, "LOCAL_WORLD_SIZE")),
        ({"LOCAL_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_SIZE": "8"}, (4, "LOCAL_WORLD_SIZE")),
        ({"LOCAL_WORLD_SIZE": "lots", "MPI_LOCALNRANKS": "2"}, (2, "MPI_LOCALNRANKS")),
        ({"SLURM_NTASKS_PER_NODE": "4(x2)"}, (1, "")),
        ({"SLURM_NTASKS_PER_NODE": "3"}, (3, "SLURM_NTASKS_PER_NODE")),
        ({"LOCAL_WORLD_SIZE": "0"}, (1, "")),
        ({"LOCAL_WORLD_SIZE": "-2"}, (1, "")),
        ({"LOCAL_WORLD_SIZE": "99999999999"}, (1, "")),
        ({"LOCAL_WORLD_SIZE": "٣"}, (1, "")),
        ({"LOCAL_WORLD_SIZE": "9" * 5000}, (1, "")),
    ],
)
def test_local_ranks(environ: dict[str, str], ranks: tuple[int, str]) -> None:
    assert local_ranks(environ) == ranks


def warned(num_workers: int, **options: Any) -> str:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        DataLoader(range(4), num_workers=num_workers, **options)  # type: ignore[arg-type]
    return str(caught[0].message) if caught else ""


def test_the_loader_warns_in_torchs_words_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 42 and Row 43: the quota and local ranks count."""
    reason = "this machine has 192 CPUs, divided by 8 local ranks (LOCAL_WORLD_SIZE)"
    monkeypatch.setattr(stoker.loader, "cpus", lambda: Cpus(24, 192, 192, None, 8, reason))
    assert warned(24) == warned(0) == ""
    assert warned(25, executor="thread") == ""
    text = warned(25)
    assert text.startswith(
        "This DataLoader will create 25 worker processes in total. Our suggested max number of worker in "
        "current system is 24, which is smaller than what this DataLoader is going to create"
    )
    assert reason in text


def test_the_loader_reads_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 43: nobody divides the machine by the ranks on it."""
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4096")
    assert "current system is 1, " in warned(2)
    assert "divided by 4096 local ranks" in warned(2)
