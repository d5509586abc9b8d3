"""`python -m tests.soak.leftovers --kills 200`: kills a training process at random lines of stoker's, and looks for what remains.

    trainer, in a folder for temporary files of its own: reads epochs ─► SIGKILL to itself, at line n of stoker's code
    2 s later: no process with its mark, nothing in its folder, nothing of stoker's in /dev/shm that was not there before

Trainers differ in the start method, the number of workers, whether these stay, and the cache. One folder may remain: the user's
own, ``stoker-UID``, in which ranks and caches meet, and which is empty then. The exit code is 1 if anything else does.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any, NamedTuple

METHODS = ("fork", "forkserver", "spawn")
AFTER_S = 2.0
_MARK = "STOKER_SOAK_TRAINER"
_ROOT = Path(__file__).resolve().parents[2]
_WITHIN_S = 120.0
_OURS, _OTHERS = ("stoker", "torch_", "psm_"), ("stoker-fuzz",)
"""What stoker and torch call what they share. The fuzzer may run beside."""
_LINES = 25_000
"""An epoch has some thousand lines, and a new trainer's first one some more. The later ones are those of later epochs."""


class Remains(NamedTuple):
    """What a trainer left: descriptions, none when all is well. ``line``: where it was killed."""

    found: list[str]
    line: str


def kill_one(seed: int, method: str) -> Remains:
    """Start a trainer, wait until it has killed itself, and look around 2 s later."""
    dice = Random(seed)
    folder = Path(tempfile.mkdtemp(prefix="soak-leftovers-"))
    mark = f"{os.getpid()}-{seed}-{method}"
    options = {
        "method": method,
        "workers": dice.randint(1, 3),
        "persistent": dice.random() < 0.5,
        "cached": dice.random() < 0.3,
        "line": int(_LINES ** dice.random()),
    }
    temporary = folder / "tmp"
    temporary.mkdir()
    before = _shared()
    try:
        trainer = subprocess.Popen(
            [sys.executable, "-m", "tests.soak.leftovers", "--train", json.dumps(options)],
            cwd=_ROOT,
            env={**os.environ, "TMPDIR": str(temporary), _MARK: mark, "STOKER_PROFILES": "off"},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        said = trainer.communicate(timeout=_WITHIN_S)[0]
        if trainer.returncode != -signal.SIGKILL:
            return Remains([f"the trainer ended with {trainer.returncode} and was not killed"], "")
        time.sleep(AFTER_S)
        found = [f"process {each}" for each in _marked(mark)]
        meeting = temporary / f"stoker-{os.getuid()}"
        files = [each for each in sorted(temporary.rglob("*")) if each != meeting]
        found += [f"temporary file {each.relative_to(temporary)}" for each in files]
        found += [f"/dev/shm/{each}" for each in sorted(_shared() - before)]
        return Remains(found, said.strip())
    finally:
        for pid in _pids(mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)


def _pids(mark: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if f"{_MARK}={mark}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


def _marked(mark: str) -> list[str]:
    found = []
    for pid in _pids(mark):
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            found.append(f"{pid} {words[:100]}")
    return found


def _shared() -> set[str]:
    with contextlib.suppress(OSError):
        names = os.listdir("/dev/shm")
        return {each for each in names if each.startswith(_OURS) and not each.startswith(_OTHERS)}
    return set()


def train(options: dict[str, Any]) -> None:
    """The trainer. It kills itself at the line that it was told, or after some epochs."""
    import stoker
    from tests.soak.rows import Noisy

    source = str(Path(stoker.__file__).parent)
    left = options["line"]

    def called(frame: FrameType, event: str, arg: Any) -> Any:
        return counted if frame.f_code.co_filename.startswith(source) else None

    def counted(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0:
            os.write(1, f"{frame.f_code.co_filename.removeprefix(source)}:{frame.f_lineno}\n".encode())
            os.kill(os.getpid(), signal.SIGKILL)
        return counted

    dataset: Any = Noisy(40, noisy=not options["cached"])
    if options["cached"]:
        dataset = stoker.cache(dataset)
    loader = stoker.DataLoader(
        dataset,
        batch_size=4,
        num_workers=options["workers"],
        multiprocessing_context=options["method"],
        persistent_workers=options["persistent"],
    )
    os.register_at_fork(after_in_child=lambda: sys.settrace(None))
    sys.settrace(called)
    for _ in range(3):
        for _ in loader:
            pass
    os.write(1, b"after the last epoch\n")
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> int:
    """Kill, print what remains, and say by the exit code whether anything does."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.leftovers", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="how many (default: 200)")
    parser.add_argument("--seed", type=int, default=0, help="what everything is drawn from (default: 0)")
    parser.add_argument(
        "--minutes", type=float, default=1e6, help="stop after so long, however many there were"
    )
    parser.add_argument("--train", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train is not None:
        train(options.train)
        return 0
    ends_s = time.monotonic() + 60 * options.minutes
    killed: Counter[str] = Counter()
    wrong = 0
    for number in range(options.kills):
        if time.monotonic() > ends_s:
            break
        method = METHODS[number % len(METHODS)]
        remains = kill_one(options.seed + number, method)
        killed[method] += 1
        if remains.found:
            wrong += 1
            print(f"seed {options.seed + number}, {method}, killed at {remains.line}:", flush=True)
            print("\n".join(f"  {each}" for each in remains.found), flush=True)
    told = ", ".join(f"{method} {count}" for method, count in killed.items())
    print(f"{killed.total()} kills ({told}): something remained after {wrong}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
