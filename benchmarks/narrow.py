"""Batches larger than /dev/shm: measured as they are, then in a process that sees a /dev/shm of 16 MB of its own.

``python -m benchmarks.narrow --side stoker`` is that process; it prints one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

from benchmarks.entries import Arguments, Case, Effort
from benchmarks.measure import LoaderType, Measurement, steady

ROOT = Path(__file__).resolve().parent.parent
SHM_BYTES = 16 << 20
PATIENCE_S = 60.0
_MOUNT = f'mount -t tmpfs -o size={SHM_BYTES} tmpfs /dev/shm && exec "$@"'
_WITHIN = ("unshare", "-Urm", "sh", "-c", _MOUNT, "sh")


def measure(case: Case, loader_type: LoaderType, arguments: Arguments, effort: Effort) -> Measurement:
    """One round: the rate in the narrow place over that in the wide one, taken before and after it.

    What fails there is a result, with a speed of 0.
    """
    wide = steady(case, loader_type, arguments, effort)
    if refusal := _refusal():
        return replace(wide, trouble=f"not run: {refusal}")
    side = "stoker" if loader_type.__module__.startswith("stoker") else "torch"
    command = [*_WITHIN, sys.executable, "-m", "benchmarks.narrow", "--side", side, "--case", case.name]
    facts = {"speed": 0.0, "wide_us": wide.wall_us}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, cwd=ROOT)
    except subprocess.TimeoutExpired:
        return replace(wide, facts=facts, trouble=f"no end within {PATIENCE_S:.0f} s")
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        return replace(wide, facts=facts, trouble=said[-1] if said else f"exit code {done.returncode}")
    found = Measurement(**json.loads(done.stdout))
    again = steady(case, loader_type, arguments, effort)
    wide_us = (wide.wall_us + again.wall_us) / 2
    return replace(found, facts={"speed": wide_us / found.wall_us, "wide_us": wide_us})


def _refusal() -> str:
    """Why a private /dev/shm cannot be had here; empty when it can."""
    try:
        probe = subprocess.run([*_WITHIN, "true"], capture_output=True, text=True, timeout=PATIENCE_S)
    except OSError as error:
        return f"no unshare command: {error}"
    return "" if probe.returncode == 0 else f"a private /dev/shm is refused: {probe.stderr.strip()}"


def main() -> None:
    """Measure one case with the /dev/shm of this process, which must be the small one."""
    from benchmarks.cases import registry
    from benchmarks.entries import FULL
    from benchmarks.round import loader_type_of, prepare

    parser = argparse.ArgumentParser(prog="python -m benchmarks.narrow", description=__doc__)
    parser.add_argument("--side", required=True, choices=("torch", "stoker"))
    parser.add_argument("--case", required=True)
    options = parser.parse_args()
    shm = os.statvfs("/dev/shm")
    if shm.f_blocks * shm.f_frsize != SHM_BYTES:
        raise SystemExit(f"/dev/shm has {shm.f_blocks * shm.f_frsize} bytes here")
    case = registry()[options.case]
    assert isinstance(case, Case)
    prepare()
    arguments = {**case.build(FULL), "num_workers": case.workers}
    print(json.dumps(asdict(steady(case, loader_type_of(options.side), arguments, FULL))))


if __name__ == "__main__":
    main()
