"""What workers used of the CPU with all their threads, over processes that took each other's place."""

from __future__ import annotations

from stoker._record.readings.worker_usage import Size
from stoker._record.recorder import Recorder


def test_cpu_time_of_a_worker_goes_on_when_another_process_takes_its_place():
    recorder = Recorder(name="a", engine="stoker", executor="process", dataset="b")
    told: list[Size] = []
    recorder.connect(tallies=lambda: told)
    seen = []
    for pid, cpu_ns in ((7, 100), (7, 300), (8, None), (8, 50), (8, 60)):
        told[:] = [Size(0, pid, None, None, None, threads=3, cpu_ns=cpu_ns)]
        (worker,) = recorder.record(steps=False, weigh=False).loaders[0].workers
        seen.append((worker.pid, worker.threads, worker.process_cpu_ns))
    assert seen == [(7, 3, 100), (7, 3, 300), (8, 3, None), (8, 3, 350), (8, 3, 360)]
    recorder.close()


def test_cpu_time_of_threads_is_counted_once():
    for executor, apart_ns in (("process", 300), ("thread", 0)):
        recorder = Recorder(name="a", engine="stoker", executor=executor, dataset="b")
        recorder.connect(tallies=lambda: [Size(0, 7, None, None, None, threads=3, cpu_ns=300)])
        recorder.record(steps=False, weigh=False)
        load = recorder.record(steps=False, weigh=False).loaders[0].load
        assert (load.own_cpu_ns or 0) - (load.parent_cpu_ns or 0) == apart_ns
        recorder.close()
