"""``stoker demo --only ray``, as a user types it: it starts a cluster, kills a worker there, and leaves nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.frameworks.packages import needs
from tests.ray.stage import ENVIRONMENT

needs("ray")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(145)]


def test_the_demo_shows_workers_on_a_cluster(tmp_path: Path) -> None:
    folder = tempfile.mkdtemp(prefix="stk-ray-", dir="/tmp")  # short: Ray puts sockets there
    try:
        done = subprocess.run(
            [sys.executable, "-m", "stoker", "demo", "--quick", "--only", "ray", "--json", "-o", "page.html"],
            cwd=tmp_path,
            env={**os.environ, **ENVIRONMENT, "RAY_TMPDIR": folder},
            capture_output=True,
            text=True,
            timeout=135,  # after 150 s, pytest would end its whole process
            check=False,
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["acts"]["ray"]["result"]
    assert [each["where"] for each in found["rates"]] == ["here", "on Ray", "on Ray"]
    assert found["killed"]["once"]
    assert found["killed"]["digest"] == found["wanted"]["digest"]
    assert found["killed"]["deaths"] == 1
    assert "Workers on a Ray cluster" in (tmp_path / "page.html").read_text()
