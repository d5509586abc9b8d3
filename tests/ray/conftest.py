"""One cluster for all tests of this folder, and a leak guard that knows what belongs to Ray.

Ray's driver opens and closes sockets of its own as it likes. So the guard looks at what is ours: threads, memory, processes.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator

import pytest

from tests.frameworks.packages import needs
from tests.ray.leaks import left_since, ours
from tests.ray.turns import starting

os.environ.setdefault("RAY_AUTH_MODE", "disabled")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")


@pytest.fixture(scope="session")
def cluster() -> Iterator[object]:
    """A cluster of one node with eight CPUs, on loopback. Connected for the whole session."""
    ray = needs("ray")
    folder = tempfile.mkdtemp(prefix="stk-ray-", dir="/tmp")  # short: Ray puts sockets there
    with starting():
        ray.init(
            address="local",  # whatever cluster runs on this machine, or is in RAY_ADDRESS
            num_cpus=8,
            object_store_memory=300 << 20,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="ERROR",
            _node_ip_address="127.0.0.1",
            _temp_dir=folder,
        )
    yield ray
    ray.shutdown()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(autouse=True)
def _leak_guard(itself_failed: Callable[[], bool]) -> Iterator[None]:
    """Replaces the guard of all other folders. Like that one, it does not examine a test that failed."""
    before = frozenset(ours())
    yield
    if itself_failed():
        return
    if left := left_since(before):
        pytest.fail("the test leaks: " + "; ".join(left), pytrace=False)
