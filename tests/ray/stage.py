"""A process that starts Ray nodes, reads a loader on them while things go wrong, and prints what came of it as JSON.

    test ─► run("scenarios.faults") ─► python -m tests.ray.stage scenarios.faults ─► nodes, loader, faults ─► {"findings": …}

``run`` is for tests, benchmarks and the soak. It bounds the stage in time and ends every process below it, by pid.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[2]
_SUBREAPER = 36
_TAIL = 60
ENVIRONMENT = {
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "PYTHONWARNINGS": "ignore",
    "STOKER_PROFILES": "off",
}


def run(scenario: str, *, within_s: float, prefix: Sequence[str] = (), **options: Any) -> dict[str, Any]:
    """Play ``module.function``, of ``tests.ray`` or ``benchmarks``, with these options in a stage; its result.

    Raises AssertionError if it fails.
    ``prefix`` starts it in namespaces. All that is below the stage ends with it, and its folder is removed.
    """
    folder = tempfile.mkdtemp(
        prefix="stk-ray-", dir="/tmp"
    )  # short: Ray puts sockets there, whose paths are bounded
    path = os.pathsep.join(part for part in (str(ROOT), *sys.path) if part)
    try:
        stage = subprocess.Popen(
            [*prefix, sys.executable, "-m", "tests.ray.stage", scenario, json.dumps(options)],
            cwd=ROOT,
            env={**os.environ, **ENVIRONMENT, "PYTHONPATH": path, "RAY_TMPDIR": folder, "STK_FOLDER": folder},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            text=True,
        )
        try:
            said = stage.communicate(timeout=within_s)[0]
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                stage.send_signal(signal.SIGUSR1)  # its stacks
            end_below(stage.pid)
            said = stage.communicate(timeout=10)[0] + f"\nended after {within_s:.0f} s"
        lines = said.splitlines()
        if stage.returncode != 0 or not lines or not lines[-1].startswith("{"):
            raise AssertionError(f"{scenario}: exit code {stage.returncode}\n" + "\n".join(lines[-_TAIL:]))
        found: dict[str, Any] = json.loads(lines[-1])
        return found
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def end_below(pid: int, *, itself: bool = True) -> int:
    """Kill a process and all below it, until none is left; how many there were below."""
    count = 0
    with contextlib.suppress(psutil.Error):
        top = psutil.Process(pid)
        while below := [
            each for each in top.children(recursive=True) if each.status() != psutil.STATUS_ZOMBIE
        ]:
            count += len(below)
            for each in below:
                with contextlib.suppress(psutil.Error):
                    each.kill()
            psutil.wait_procs(below, timeout=5)
        if itself:
            top.kill()
    return count


def main() -> None:
    """Play one scenario. The last line on stdout is its result."""
    import faulthandler

    faulthandler.register(signal.SIGUSR1, all_threads=True)
    ctypes.CDLL(None).prctl(
        _SUBREAPER, 1, 0, 0, 0
    )  # a node's orphans stay below this process, where end_below finds them
    module, _, name = sys.argv[1].rpartition(".")
    play = getattr(importlib.import_module(module if "." in module else f"tests.ray.{module}"), name)
    failed = True
    result: dict[str, Any] = {}
    try:
        result = play(**json.loads(sys.argv[2]))
        failed = False
    finally:
        sys.stdout.flush()
        end_below(os.getpid(), itself=False)
        if not failed:
            print("\n" + json.dumps(result), flush=True)
        else:
            import traceback

            traceback.print_exc()
        os._exit(int(failed))  # ray's exit handlers would wait for the processes that were just ended


if __name__ == "__main__":
    main()
