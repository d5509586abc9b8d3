"""Facts and counters of machines that tell everything, little, or nothing: fewer facts, marked missing, never zero."""

from __future__ import annotations

from pathlib import Path

from stoker._record.readings import machine
from stoker._record.readings.machine import CounterReader, facts


def written(root: Path, **files: str) -> Path:
    """A folder with these files; "__" in a name is a folder's border."""
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_a_machine_that_tells_nothing(tmp_path: Path) -> None:
    found = facts(sys_root=tmp_path / "sys", proc=tmp_path / "proc", shm=str(tmp_path / "shm"))
    assert (found.quota, found.cgroup_limit_bytes, found.shm_bytes) == (None, None, None)
    assert "cgroup files" in found.missing["quota"]
    assert "shm" in found.missing["shm_bytes"]
    assert found.cpus
    assert found.versions["python"]
    counters = CounterReader(sys_root=tmp_path / "sys", proc=tmp_path / "proc").read()
    assert (counters.busy_cpu_ns, counters.throttled_ns, counters.pressure_ns) == (None, None, None)
    load = counters.since(counters, 0)
    assert (load.busy_cpu_ns, load.throttled_periods) == (None, None)


def test_counters_of_both_kinds_of_cgroup(tmp_path: Path) -> None:
    stat = "cpu  100 10 50 1000 7 3 2 5 0 0\ncpu0 1 1 1 1\n"
    pressure = "some avg10=0.00 avg60=0.00 avg300=0.00 total=1234\nfull avg10=0.00 total=0\n"
    proc = written(
        tmp_path / "proc", stat=stat, pressure__cpu=pressure, self__cgroup="1:cpu,cpuacct:/job\n0::/\n"
    )
    first = written(tmp_path / "v1", cpu__job__ignored="")
    (first / "cpu/job/cpu.stat").write_text("nr_periods 10\nnr_throttled 4\nthrottled_time 5000000\n")
    counters = CounterReader(sys_root=first, proc=proc).read()
    tick_ns = machine._TICK_NS
    assert counters.busy_cpu_ns == (100 + 10 + 50 + 3 + 2) * tick_ns
    assert (counters.steal_ns, counters.iowait_ns) == (5 * tick_ns, 7 * tick_ns)
    assert (counters.quota_periods, counters.throttled_periods, counters.throttled_ns) == (10, 4, 5_000_000)
    assert counters.pressure_ns == 1_234_000
    (proc / "self/cgroup").write_text("0::/job\n")
    second = written(tmp_path / "v2", job__ignored="")
    (second / "job/cpu.stat").write_text("usage_usec 9\nnr_periods 20\nnr_throttled 2\nthrottled_usec 7\n")
    counters = CounterReader(sys_root=second, proc=proc).read()
    assert (counters.quota_periods, counters.throttled_periods, counters.throttled_ns) == (20, 2, 7000)


def test_differences_are_never_negative(tmp_path: Path) -> None:
    later, earlier = (
        CounterReader(
            proc=written(tmp_path / name, stat=f"cpu {user} 0 0 0 0 0 0 0\n"), sys_root=tmp_path
        ).read()
        for name, user in (("a", 5), ("b", 9))
    )
    load = later.since(earlier, 50)
    assert load.busy_cpu_ns == 0
    assert load.own_cpu_ns == (load.parent_cpu_ns or 0) + 50
