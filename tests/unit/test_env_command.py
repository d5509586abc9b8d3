"""``stoker env``: what it tells of machines that this one is not, and what it keeps to itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from stoker.cli.command import env_facts
from stoker.cli.env import lines
from stoker.cli.main import main

MOUNTS = [
    "22 1 8:1 / / rw - ext4 /dev/sda1 rw",
    "23 22 0:30 / /home rw shared:1 - nfs4 server:/home rw",
    "24 22 0:31 / /with\\040space rw - xfs /dev/sdb rw",
    "25 22 0:32 / /tmp rw - ext4 /dev/sdc rw",
    "26 25 0:33 / /tmp rw - tmpfs tmpfs rw",
    "a line that is none",
]


def env(*arguments: str) -> Any:
    return CliRunner().invoke(main, ["env", *arguments])


def test_it_fits_80_columns_and_says_what_a_report_needs() -> None:
    shown = env()
    assert shown.exit_code == 0
    assert max(map(len, shown.output.splitlines())) <= 80
    labels = [line.split("  ")[0] for line in shown.output.splitlines() if line[:1].strip()]
    assert labels == [
        "stoker", "torch", "Python", "system", "CPUs", "memory", "/dev/shm", "descriptors", "start method", "accelerators",
        "files", "packages", "variables",
    ]  # fmt: skip


def test_json_is_the_same_and_plain() -> None:
    found = json.loads(env("--json").output)
    assert (found["format"], found["version"]) == ("stoker-env", 1)
    assert found["packages"]["torch"]
    assert found["machine"]["usable"] >= 1
    assert lines(found)[:4] == env().output.splitlines()[:4]


def test_torch_is_asked_on_demand() -> None:
    """It is imported here already; that nothing else imports it is told by test_start.py."""
    found = json.loads(env("--torch", "--json").output)
    assert found["torch"]["version"] == __import__("torch").__version__
    assert "threads, shares tensors by" in env("--torch").output


def test_a_torch_that_cannot_be_imported_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Any:
        raise OSError("/home/ada/lib/libcudart.so.12: cannot open shared object file")

    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.setattr(env_facts, "torch_facts", broken)
    assert "cannot be imported: OSError: ~/lib/libcudart.so.12" in env("--torch").output


def test_nothing_personal_and_no_secret_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "HOME": "/home/ada",
        "USER": "ada",
        "STOKER_RECORD": "/home/ada/runs",
        "STOKER_API_KEY": "sk-1",
        "TMPDIR": "/scratch/ada/tmp",
        "AWS_SECRET_ACCESS_KEY": "sk-2",
        "OMP_NUM_THREADS": "4",
        "LD_PRELOAD": "/home/ada/lib/libjemalloc.so:/usr/lib/other.so",
    }.items():
        monkeypatch.setenv(name, value)
    shown = env().output
    assert "ada" not in shown
    assert "sk-" not in shown
    assert "AWS" not in shown
    assert "STOKER_RECORD=~/runs" in shown
    assert "TMPDIR=/scratch/~/tmp" in shown
    assert "OMP_NUM_THREADS=4" in shown
    assert "LD_PRELOAD=~/lib/libjemalloc.so:/usr/lib/other.so" in shown


@given(st.sampled_from(["/", "", " ", ":", "x", "-"]), st.text("ad/~:x", max_size=8))
def test_a_home_folder_never_stays(before: str, behind: str) -> None:
    environ = {"HOME": "/home/ada", "USER": "ada"}
    assert "/home/ada/" not in env_facts.impersonal(f"{before}/home/ada/{behind}", environ)


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/", "ext4"), ("/home/ada", "nfs4"), ("/homes", "ext4"), ("/with space/x", "xfs"), ("/tmp", "tmpfs")],
)
def test_the_filesystem_is_that_of_the_nearest_mount(path: str, kind: str) -> None:
    assert env_facts.filesystem_of(path, MOUNTS) == kind


def test_accelerators_are_seen_in_dev(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia1", "nvidiactl", "accel0", "kfd"):
        (tmp_path / "dev" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "dev" / name).touch()
    version = tmp_path / "proc/driver/nvidia/version"
    version.parent.mkdir(parents=True)
    version.write_text(
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\n"
    )
    assert env_facts.accelerators(tmp_path) == ["2 × NVIDIA, driver 550.54.15", "AMD (/dev/kfd)", "1 × TPU"]


def test_a_machine_that_tells_nothing_is_told_as_such(tmp_path: Path) -> None:
    found = env_facts.gathered({}, root=tmp_path)
    shown = "\n".join(lines(found))
    assert "none that matter" in shown
    assert "none seen in /dev" in shown
    assert "unknown filesystem" in shown
