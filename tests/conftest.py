"""What every test gets: the leak guard and one Hypothesis profile; what some ask for: an incubator.

The guard is autouse and compares what the process holds before and after each test: descriptors, Python
threads, child processes and mappings of our own shared memory. It is function-scoped, so what a module- or
session-scoped fixture opens before the test belongs to the baseline. Of a browser that such a fixture has started, processes
come and go by themselves: its pid is in ``lasting_children`` while it is there. A test that failed is not examined: its
traceback keeps its locals alive.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Generator, Iterator
from multiprocessing import set_forkserver_preload

import pytest
from hypothesis import HealthCheck, settings

# numpy's OpenBLAS stops its threads before every fork and starts them again behind it; new ones spin for some milliseconds before
# they sleep: a quarter of the CPU time of two files that fork a lot. They still start, but sleep at once. Read by numpy's import.
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")

# Two test processes share the cores: a thread of OpenMP that spins while it waits takes them from the one that it waits for.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

pytest.register_assert_rewrite("stoker.testing")

from stoker.testing import holdings, leaks_since  # noqa: E402
from tests import warm  # noqa: E402

# A deadline would assert a time; on a busy machine it would fail without a bug.
settings.register_profile("stoker", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("stoker")

# One fork server serves all tests of a process. Whoever starts it (torch's loader, in a comparison), it imports torch once:
# otherwise every worker of every later test would.
set_forkserver_preload(["stoker._runtime.worker.process.preload"])

# What the tests tune is of no use to whoever runs them, and what that person has tuned must not change the tests.
os.environ["STOKER_PROFILES"] = "off"

# pytest-xdist tells its processes that they have 80 columns. Commands heed that; without it, what is no terminal has no width.
for name in ("COLUMNS", "LINES"):
    os.environ.pop(name, None)

# A shell gives what it runs in the background SIGINT ignored, and every process below inherits that: tests of Ctrl-C would wait.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_failed = pytest.StashKey[bool]()
_GRACE_S = 20.0
"""How long a busy machine may take to end what was told to. A test that leaks nothing does not wait."""


def pytest_collection_finish() -> None:
    """What is there before the first test stays: collections, the guard's and the interpreter's own, need not look at it."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember for the guard whether the test itself failed."""
    report = yield
    if report.when == "call" and not report.passed:
        item.stash[_failed] = True
    return report


@pytest.fixture(scope="session")
def warm_scripts() -> Iterator[None]:
    """One incubator per test process, for the scripts of ``tests.warm``. A folder that has them asks for it in its conftest."""
    warm.incubator = warm.Incubator()
    yield
    warm.incubator.close()
    warm.incubator = None


@pytest.fixture(scope="session")
def lasting_children() -> set[int]:
    """Pids of children whose own children are not a test's business. Who puts one in takes it out when it has ended."""
    return set()


@pytest.fixture
def itself_failed(request: pytest.FixtureRequest) -> Callable[[], bool]:
    """Asked by a guard after the test: whether that failed by itself."""
    return lambda: bool(request.node.stash.get(_failed, False))


@pytest.fixture(autouse=True)
def _leak_guard(itself_failed: Callable[[], bool], lasting_children: set[int]) -> Iterator[None]:
    before = holdings(apart_from=lasting_children)
    yield
    if itself_failed():
        return
    if leaked := leaks_since(before, grace_s=_GRACE_S, apart_from=lasting_children):
        pytest.fail("the test leaks: " + "; ".join(leaked), pytrace=False)
