"""The machine's checks: each on facts that have the fault, and on facts that only look like it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from stoker._tools.doctor.catalogue import check_of
from stoker._tools.doctor.facts.host.leftovers import Leftovers
from stoker._tools.doctor.facts.host.machine import MachineFacts
from stoker._tools.doctor.facts.host.tmpdir import Tmpdir
from tests.unit.doctor.given import cpus, found, loader, only, process, samples, target

MIB = 1 << 20
GIB = 1 << 30


def here(code: str, machine: MachineFacts) -> str:
    check = check_of(code)
    assert check is not None
    assert check.here is not None
    return check.here(machine)


CONTAINER = MachineFacts(shm_bytes=64 * MIB, shm_free_bytes=60 * MIB, container="docker")
BIG = samples(batch_bytes=37 * MIB, batch_tensors=2)
STOKER = target(engine="stoker", num_workers=8)


def test_201_batches_that_do_not_fit() -> None:
    finding = only("STK201", machine=CONTAINER, target=target(), samples=BIG)
    assert finding.severity == "high"
    assert finding.numbers["window_bytes"] == 4 * 37 * MIB
    assert "4 batches of 37 MiB" in finding.evidence
    assert "60 MiB are free" in finding.evidence
    assert "--shm-size=1g" in finding.advice
    nearly = MachineFacts(shm_bytes=256 * MIB, shm_free_bytes=200 * MIB, container="kubernetes")
    finding = only("STK201", machine=nearly, target=target(), samples=BIG)
    assert finding.severity == "moderate"
    assert "emptyDir" in finding.advice


def test_201_small_but_enough() -> None:
    assert found("STK201", machine=CONTAINER, target=target(), samples=samples(batch_bytes=1 * MIB)) == []
    assert found("STK201", machine=CONTAINER, target=STOKER, samples=BIG) == []
    assert found("STK201", machine=CONTAINER, target=target(num_workers=0), samples=BIG) == []
    assert found("STK201", machine=MachineFacts(shm_bytes=2 * GIB, shm_free_bytes=2 * GIB)) == []
    assert found("STK201", machine=MachineFacts()) == []


def test_201_without_a_loader() -> None:
    assert only("STK201", machine=CONTAINER).severity == "high"
    assert only("STK201", machine=CONTAINER, target=target()).severity == "high"  # samples could not be had
    assert here("STK201", CONTAINER) == "/dev/shm holds 64 MiB, of which 60 MiB are free"


def test_202_a_descriptor_per_tensor() -> None:
    machine = MachineFacts(descriptors=1024, descriptors_hard=524288, descriptors_open=20)
    many = samples(batch_tensors=120)
    finding = only("STK202", machine=machine, target=target(num_workers=4), samples=many)
    assert finding.severity == "high"  # 984 / 120: 8 batches, where 8 are on their way and one is in use
    assert finding.numbers["fit"] == 8
    assert "524288" in finding.advice
    assert only("STK202", machine=machine, target=target(), samples=many).severity == "moderate"


def test_202_the_usual_limit_is_enough_for_few_tensors() -> None:
    machine = MachineFacts(descriptors=1024, descriptors_hard=1024, descriptors_open=20)
    many = samples(batch_tensors=120)
    named = process(sharing_strategy="file_system")
    assert (
        found("STK202", machine=machine, target=target(num_workers=8), samples=samples(batch_tensors=3)) == []
    )
    assert found("STK202", machine=machine, target=STOKER, samples=many) == []
    assert found("STK202", machine=machine, target=target(), samples=many, process=named) == []
    assert found("STK202", machine=machine) == []


def test_202_without_a_loader() -> None:
    finding = only("STK202", machine=MachineFacts(descriptors=256, descriptors_hard=256, descriptors_open=9))
    assert finding.severity == "high"
    assert "--ulimit nofile" in finding.advice
    unlimited = MachineFacts(descriptors=(1 << 63) - 1, descriptors_hard=(1 << 63) - 1)
    assert here("STK202", unlimited) == ""
    assert found("STK202", machine=unlimited) == []


def test_203_a_mapping_per_tensor() -> None:
    machine = MachineFacts(max_maps=65530, maps=530)
    finding = only(
        "STK203", machine=machine, target=target(num_workers=8), samples=samples(batch_tensors=4000)
    )
    assert (finding.severity, finding.numbers["fit"]) == ("high", 16)
    assert only("STK203", machine=MachineFacts(max_maps=30000)).severity == "low"
    assert "65530" in here("STK203", machine)


def test_203_the_usual_limit() -> None:
    machine = MachineFacts(max_maps=65530, maps=530)
    assert found("STK203", machine=machine) == []
    assert (
        found("STK203", machine=machine, target=target(num_workers=8), samples=samples(batch_tensors=40))
        == []
    )
    assert found("STK203", machine=machine, target=STOKER, samples=samples(batch_tensors=4000)) == []


QUOTA = cpus(4, 64, affinity=64, quota=4.0, reason="the cgroup's quota is 4 CPUs")


def test_204_a_quota() -> None:
    finding = only("STK204", machine=MachineFacts(cpus=QUOTA))
    assert finding.severity == "low"
    assert "os.cpu_count() says 64; this process can use 4" in finding.evidence
    assert (finding.numbers["usable"], finding.numbers["quota"]) == (4, 4.0)
    assert (
        only("STK204", machine=MachineFacts(cpus=QUOTA), target=target(num_workers=64)).severity == "moderate"
    )
    assert only("STK204", machine=MachineFacts(cpus=QUOTA), target=target(num_workers=4)).severity == "none"


def test_204_a_cgroup_that_stood_still() -> None:
    throttled = MachineFacts(cpus=QUOTA, quota_periods=1000, throttled_periods=300, throttled_s=12.0)
    evidence = [each.evidence for each in found("STK204", machine=throttled)]
    assert "in 300 of 1000 periods (30%), 12 s in all" in evidence[0]
    rarely = MachineFacts(cpus=QUOTA, quota_periods=1000, throttled_periods=30, throttled_s=1.2)
    assert len(found("STK204", machine=rarely)) == 1  # the quota alone


def test_204_all_cpus() -> None:
    assert found("STK204", machine=MachineFacts(cpus=cpus(8))) == []
    assert here("STK204", MachineFacts(cpus=cpus(8))) == ""


def folder(path: str, **changes: Any) -> Tmpdir:
    ordinary = {
        "variable": "TMPDIR",
        "exists": True,
        "writable": True,
        "free_bytes": GIB,
        "length_bytes": len(path),
        "used": path,
    }
    return Tmpdir(path, **{**ordinary, **changes})


def test_205_a_path_too_long_for_sockets() -> None:
    long = MachineFacts(tmpdir=folder("/" + 75 * "x"), system="Linux")
    finding = only("STK205", machine=long)
    assert (finding.severity, finding.numbers["length_bytes"], finding.numbers["longest_bytes"]) == (
        "high",
        76,
        75,
    )
    assert here("STK205", long)
    assert found("STK205", machine=long, target=STOKER) == []
    assert found("STK205", machine=MachineFacts(tmpdir=folder("/" + 74 * "x"), system="Linux")) == []


def test_205_a_folder_that_cannot_be_used() -> None:
    gone = MachineFacts(tmpdir=folder("/gone", exists=False, writable=False, free_bytes=None, used="/tmp"))
    finding = only("STK205", machine=gone)
    assert finding.severity == "low"
    assert "TMPDIR is /gone, which does not exist: Python uses /tmp instead" in finding.evidence
    named = process(sharing_strategy="file_system")
    assert only("STK205", machine=gone, target=target(), process=named).severity == "high"
    nowhere = MachineFacts(tmpdir=folder("/full", free_bytes=0, writable=False, used=None))
    assert only("STK205", machine=nowhere).severity == "high"
    assert "is full" in here("STK205", nowhere)


def test_205_a_folder_without_a_fault() -> None:
    assert found("STK205", machine=MachineFacts(tmpdir=folder("/tmp", variable=""))) == []
    assert here("STK205", MachineFacts(tmpdir=folder("/tmp"))) == ""
    assert only("STK205", machine=MachineFacts(tmpdir=folder("/tmp", free_bytes=MIB))).severity == "low"


def test_206_leftovers() -> None:
    left = Leftovers(2, 300 * MIB, 90_000.0, ("torch_7_1_0", "torch_7_1_1; ls"), ("torch_",))
    finding = only("STK206", machine=MachineFacts(shm_bytes=GIB, shm_shared=False, leftovers=left))
    assert finding.severity == "low"
    full = MachineFacts(shm_bytes=GIB, shm_free_bytes=100 * MIB, leftovers=left)
    assert only("STK206", machine=full).severity == "moderate"
    assert "2 files (torch_*) in /dev/shm hold 300 MiB" in finding.evidence
    assert "the oldest for 1 day" in finding.evidence
    assert finding.edit is not None
    assert finding.edit.after == "cd /dev/shm && rm torch_7_* 'torch_7_1_1; ls'"
    assert only("STK206", machine=MachineFacts(shm_bytes=64 * GIB, leftovers=left)).severity == "none"
    shared = only("STK206", machine=MachineFacts(shm_bytes=GIB, shm_shared=True, leftovers=left))
    assert "may share /dev/shm" in shared.advice
    many = Leftovers(40, 300 * MIB, 90_000.0, ("torch_7_1_0", "torch_7_1_1"), ("torch_",))
    assert "the largest first" in only("STK206", machine=MachineFacts(shm_bytes=GIB, leftovers=many)).advice
    names = tuple(f"sem.mp-{place}" for place in range(20))
    crowd = only("STK206", machine=MachineFacts(shm_bytes=GIB, leftovers=replace(many, names=names)))
    assert crowd.edit is not None
    assert crowd.edit.after.count("sem.mp-") == 4


def test_206_nothing_that_is_certain() -> None:
    semaphores = Leftovers(3, 96, 7200.0, ("sem.mp-a", "sem.mp-b", "sem.mp-c"), ("sem.mp-",))
    assert only("STK206", machine=MachineFacts(shm_bytes=GIB, leftovers=semaphores)).severity == "none"
    assert found("STK206", machine=MachineFacts(leftovers=Leftovers(0, 0, 0.0, (), (), undecided=40))) == []
    assert found("STK206", machine=MachineFacts()) == []


def test_207_workers_alone_are_too_much() -> None:
    machine = MachineFacts(memory_bytes=2 * GIB, cgroup_limit_bytes=2 * GIB, available_bytes=1800 * MIB)
    finding = only("STK207", machine=machine, target=target(num_workers=16, start_method="spawn"))
    assert finding.severity == "high"
    assert "1.76 GiB of the 2 GiB that the cgroup has can still be taken" in finding.evidence
    assert finding.numbers["workers_bytes"] == 16 * 145 * MIB
    assert found("STK207", machine=machine, target=target(num_workers=16)) == []  # forked ones are small
    ours = target(num_workers=16, start_method="spawn", engine="stoker")
    assert found("STK207", machine=machine, target=ours) == []


def test_207_little_is_left_and_what_promises_more() -> None:
    assert only("STK207", machine=MachineFacts(available_bytes=300 * MIB)).severity == "moderate"
    assert (
        found("STK207", machine=MachineFacts(available_bytes=300 * MIB), target=target(num_workers=0)) == []
    )
    promising = MachineFacts(
        available_bytes=6 * GIB, cgroup_limit_bytes=8 * GIB, shm_bytes=64 * GIB, shm_type="tmpfs"
    )
    assert [each.severity for each in found("STK207", machine=promising)] == ["none"]
    assert found("STK207", machine=promising, target=STOKER) == []
    swapping = MachineFacts(available_bytes=6 * GIB, swap_bytes=8 * GIB, swap_free_bytes=GIB)
    assert only("STK207", machine=swapping).where == "swap"


def test_207_enough() -> None:
    plenty = MachineFacts(
        memory_bytes=32 * GIB,
        available_bytes=20 * GIB,
        shm_bytes=16 * GIB,
        shm_type="tmpfs",
        swap_bytes=8 * GIB,
        swap_free_bytes=7 * GIB,
    )
    assert found("STK207", machine=plenty) == []
    assert found("STK207", machine=plenty, target=target(num_workers=16, start_method="spawn")) == []


def test_208_strict_reservations() -> None:
    machine = MachineFacts(overcommit=2, commit_limit_bytes=32 * GIB, committed_bytes=30 * GIB)
    finding = only("STK208", machine=machine, target=target(num_workers=4))
    assert finding.severity == "high"
    assert (
        "30 GiB of 32 GiB are reserved, so that 2 GiB are left: 512 MiB for each of 4 workers"
        in finding.evidence
    )
    assert only("STK208", machine=machine).severity == "high"


def test_208_other_modes_and_start_methods() -> None:
    usual = MachineFacts(overcommit=0, commit_limit_bytes=12 * GIB, committed_bytes=30 * GIB)
    assert found("STK208", machine=usual) == []
    assert here("STK208", usual) == ""
    machine = MachineFacts(overcommit=2, commit_limit_bytes=32 * GIB, committed_bytes=30 * GIB)
    assert found("STK208", machine=machine, target=target(start_method="forkserver")) == []
    roomy = MachineFacts(overcommit=2, commit_limit_bytes=64 * GIB, committed_bytes=10 * GIB)
    assert found("STK208", machine=roomy) == []


def test_209_files_by_name() -> None:
    named = process(sharing_strategy="file_system")
    machine = MachineFacts(system="Linux", descriptors_hard=4096)
    finding = only("STK209", machine=machine, process=named, target=target())
    assert finding.severity == "moderate"
    assert "4096" in finding.evidence


@pytest.mark.parametrize("system", ["Darwin", "Linux"])
def test_209_where_there_is_no_choice_or_no_use(system: str) -> None:
    named = process(sharing_strategy="file_system")
    aim = target() if system == "Darwin" else STOKER
    assert found("STK209", machine=MachineFacts(system=system), process=named, target=aim) == []
    assert found("STK209", machine=MachineFacts(system=system), process=process(), target=target()) == []


def test_809_few_tasks_are_left() -> None:
    tight = MachineFacts(pids_limit=100, pids_now=80)
    finding = only("STK809", machine=tight, target=target(num_workers=8))
    assert (finding.severity, finding.numbers["left"], finding.numbers["wanted"]) == ("high", 20, 32)
    assert "the cgroup has 80 processes and threads, of 100 allowed" in finding.evidence
    assert only("STK809", machine=tight).severity == "low"


def test_809_enough_tasks() -> None:
    tight = MachineFacts(pids_limit=100, pids_now=80)
    assert found("STK809", machine=tight, target=target(num_workers=4)) == []
    assert found("STK809", machine=tight, target=target(num_workers=0)) == []
    assert found("STK809", machine=MachineFacts(pids_limit=10_000, pids_now=80)) == []
    assert found("STK809", machine=MachineFacts()) == []


def test_702_workers_that_take_turns() -> None:
    busy = samples(sample_s=8 * (0.008,), cpu_s=8 * (0.0076,))
    finding = only("STK702", machine=MachineFacts(cpus=cpus(4)), target=target(num_workers=16), samples=busy)
    assert finding.severity == "moderate"
    assert "16 workers for 4 CPUs" in finding.evidence
    assert "a sample takes 8 ms and computes 95% of that" in finding.evidence
    assert finding.edit is not None
    assert (finding.edit.before, finding.edit.after) == ("num_workers=16", "num_workers=5")
    assert only("STK702", machine=MachineFacts(cpus=cpus(4)), target=target(num_workers=16)).severity == "low"


def test_702_is_silent_where_no_workers_are_advised() -> None:
    quick = samples(sample_s=8 * (2e-6,), cpu_s=8 * (2e-6,))
    told = {"machine": MachineFacts(cpus=cpus(4)), "target": target(num_workers=16), "samples": quick}
    assert "too quick" in only("STK702", **told).evidence
    assert found("STK702", **told, speed=SimpleNamespace(always_inline=True)) == []
    assert found("STK702", **told, speed=SimpleNamespace(always_inline=False)) != []


def test_702_waiting_for_a_cpu_is_not_waiting_for_data() -> None:
    pushed = samples(sample_s=(0.008, 0.02, 0.008, 0.03, 0.008, 0.025), cpu_s=6 * (0.0079,))
    finding = only(
        "STK702", machine=MachineFacts(cpus=cpus(4)), target=target(num_workers=16), samples=pushed
    )
    assert finding.numbers["useful"] == 5


def test_702_workers_that_wait() -> None:
    waiting = samples(sample_s=8 * (0.008,), cpu_s=8 * (0.0016,))
    machine = MachineFacts(cpus=cpus(4))
    assert found("STK702", machine=machine, target=target(num_workers=16), samples=waiting) == []
    assert found("STK702", machine=machine, target=target(num_workers=5)) == []
    assert found("STK702", machine=machine, target=target(num_workers=16, assumed=True)) == []


def test_702_every_loader_of_a_target() -> None:
    aim = target(num_workers=2, others=(loader(num_workers=12, site="train.py:40"),))
    finding = only("STK702", machine=MachineFacts(cpus=cpus(4)), target=aim)
    assert finding.edit is not None
    assert finding.edit.site == "train.py:40"
