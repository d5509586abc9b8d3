"""Workers compute with several threads each, and together with more than there are CPUs.

What it finds
-------------
In a worker set up as torch does it, a native library computed with several threads. Their number, times workers, times
local ranks, exceeds the usable CPUs. The doctor finds the library by limiting one after the other to a single thread. A
pool that computed nothing is not reported. The exception is OpenCV's, which starts with the first large picture: that
is a finding of low severity.

Why it hurts
------------
OpenCV, OpenBLAS, MKL and OpenMP take as many threads as the machine has cores, in every process. torch limits only its
own pool to one thread in a worker. With 16 workers on 16 cores that is 256 threads. They take turns, lose their caches,
and spin while they wait for threads that do not run. Samples become slower with every worker that is added.

Example
-------
```python
class Pictures(Dataset):
    def __getitem__(self, index):
        return cv2.resize(cv2.imread(self.paths[index]), (224, 224))     # as many threads as cores, in each worker
```

Fix
---
One thread per worker: the workers are the parallelism.

```python
def one_thread(worker):
    cv2.setNumThreads(0)

DataLoader(dataset, num_workers=8, worker_init_fn=one_thread)
```

For the others set `OMP_NUM_THREADS=1`, `OPENBLAS_NUM_THREADS=1`, `MKL_NUM_THREADS=1`, `NUMEXPR_NUM_THREADS=1` before anything
is imported, or call `threadpoolctl.threadpool_limits(1)` in `worker_init_fn`, which leaves the trainer's own threads alone;
`TOKENIZERS_PARALLELISM=false` for tokenizers. stoker's loader does all of this in its workers.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker._record.finding import Edit, Finding, counted
from stoker._tools.doctor.check import Check, Mark
from stoker._tools.doctor.facts.target import TargetFacts
from stoker._tools.doctor.facts.worker import WorkerFacts
from stoker._tools.doctor.wording import ABOUT_TRAINING, LOADER, OTHERS

_COMPUTING, _SOME = 0.2, 0.05
"""CPU time of other threads over that of the main one: from the first on they really compute, below the second it is noise."""
_VARIABLES = {
    "openblas": ("OPENBLAS_NUM_THREADS", "1"),
    "mkl": ("MKL_NUM_THREADS", "1"),
    "blis": ("BLIS_NUM_THREADS", "1"),
    "numexpr": ("NUMEXPR_NUM_THREADS", "1"),
    "tokenizers": ("TOKENIZERS_PARALLELISM", "false"),
}


def examine(worker: WorkerFacts, target: TargetFacts) -> Iterator[Finding]:
    """Threads that compute, times workers, against the CPUs of this rank."""
    loader = target.loader
    yield from _configured(worker, target)
    threads = worker.threads_started + 1
    if worker.computing:
        threads = max(threads, worker.pools.get(worker.computing, 1))
    total = threads * loader.num_workers
    if loader.engine == "stoker" or threads < 2 or total <= worker.usable_cpus or worker.beside < _SOME:
        return
    whose = worker.computing or "a native library"
    ranks = f" × {worker.ranks} local ranks" if worker.ranks > 1 else ""
    yield CHECK.finding(
        f"{counted(threads, 'thread')} of {whose} × {counted(loader.num_workers, 'worker')}{ranks} = {total * worker.ranks} "
        f"threads for {counted(worker.usable_cpus * worker.ranks, 'CPU')}; in a worker other threads had "
        f"{worker.beside:.0%} of the CPU time of the one that makes the samples",
        _advice(worker.computing),
        severity="high" if worker.beside >= _COMPUTING else "moderate",
        edit=_edit(worker.computing, loader.site),
        where=worker.computing or None,
        numbers={
            "threads": threads,
            "workers": loader.num_workers,
            "ranks": worker.ranks,
            "usable_cpus": worker.usable_cpus,
            "beside": round(worker.beside, 3),
            "cpu_over_wall": round(worker.cpu_s / max(worker.wall_s, 1e-9), 2),
            "library": worker.computing,
        },
    )


def _configured(worker: WorkerFacts, target: TargetFacts) -> Iterator[Finding]:
    """OpenCV starts its threads for the first picture that is large enough: that these samples' were not says little.

    Of other libraries a pool that nobody used says nothing: numpy brings one along for products of matrices.
    """
    loader, threads = target.loader, worker.pools.get("cv2", 1)
    total = threads * loader.num_workers
    if loader.engine == "stoker" or worker.beside >= _SOME or threads < 2 or total <= worker.usable_cpus:
        return
    yield CHECK.finding(
        f"OpenCV may use {counted(threads, 'thread')} in each of {counted(loader.num_workers, 'worker')}: {total} for "
        f"{counted(worker.usable_cpus, 'CPU')}. For the samples that were tried it did not; larger pictures are divided",
        _advice("cv2"),
        severity="low",
        edit=_edit("cv2", loader.site),
        where="cv2",
        numbers={
            "threads": threads,
            "workers": loader.num_workers,
            "ranks": worker.ranks,
            "usable_cpus": worker.usable_cpus,
            "beside": round(worker.beside, 3),
            "library": "cv2",
        },
    )


def _advice(library: str) -> str:
    if library == "cv2":
        return "Call cv2.setNumThreads(0) in worker_init_fn."
    if library in _VARIABLES:
        name, value = _VARIABLES[library]
        return f"Set {name}={value} before anything is imported, or hold the pools to one thread in worker_init_fn."
    return "Hold native pools to one thread in worker_init_fn (threadpoolctl.threadpool_limits(1)), or set OMP_NUM_THREADS=1."


def _edit(library: str, site: str | None) -> Edit:
    if library == "cv2":
        return Edit("cv2.setNumThreads(0)", None, site, kind="init")
    if library in _VARIABLES:
        name, value = _VARIABLES[library]
        return Edit(f'os.environ.setdefault("{name}", "{value}")', None, site, kind="environment")
    return Edit("import threadpoolctl\nthreadpoolctl.threadpool_limits(1)", None, site, kind="init")


_REFUSED = (
    r"OpenBLAS blas_thread_init: pthread_create(?: failed for thread|: Resource temporarily unavailable)|"
    r"libgomp: Thread creation failed: Resource temporarily unavailable"
)

CHECK = Check(
    __name__,
    __doc__,
    severity="high",
    prevented="Workers hold OpenMP, BLAS, OpenCV and torch to one thread each, before user code runs.",
    examine=examine,
    marks=(
        Mark(_REFUSED, also=(rf"{LOADER}|num_workers",), weight=20),
        Mark(  # alone, or in a training's log: programs of all kinds say it
            _REFUSED,
            also=(
                rf"\A(?:[^\n]*(?:OpenBLAS|libgomp)[^\n]*(?:\n|\Z)|[ \t]*\n)+\Z|{ABOUT_TRAINING}|\bLOCAL_RANK\b",
            ),
            never=(OTHERS,),
            weight=12,
        ),
        Mark(
            r"std::system_error'\s{1,40}what\(\):\s{1,40}Resource temporarily unavailable",
            also=(r"is killed by signal: Abort",),
            weight=24,
        ),
        Mark(r"OMP: Error #(?:34|35|96)\b", also=(rf"{LOADER}|num_workers",), weight=20),
        Mark(
            r"OMP_NUM_THREADS environment variable for each process to be 1 in default, to avoid your system "
            r"being overloaded",
            weight=0,
        ),
    ),
    rows=(43,),
)
