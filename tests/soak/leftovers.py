"""`python -m tests.soak.leftovers --kills 200`: kills a training process at random lines of stoker's, and looks for what remains.

    trainer, in a folder for temporary files of its own: reads epochs ─► SIGKILL to itself, at line n of stoker's code
    from then on, until nothing is left or half a minute is over: processes with its mark, its folder, stoker's names in
    /dev/shm; of a Ray cluster: actors, workers, what stoker put into the nodes' folder for temporary files

Trainers differ in the start method, the number of workers, whether these stay, the cache and the record. Two things may remain:
the user's own folder ``stoker-UID``, in which ranks and caches meet, and which is empty then; and the files that a trainer was
told to write, of which the next one has to be able to go on. The exit code is 1 if anything else does.
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
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any, NamedTuple

METHODS = ("fork", "forkserver", "spawn")
RAY = "ray"
PROMISED_S = 2.0
"""After so long nothing remains, on a machine that is not busy."""
_PATIENCE_S = 30.0
"""How long is waited for on a machine that is."""
_PAUSE_S = 0.05
_MARK = "STOKER_SOAK_TRAINER"
_ROOT = Path(__file__).resolve().parents[2]
_WITHIN_S = 120.0
_OURS, _OTHERS = ("stoker", "torch_", "psm_"), ("stoker-fuzz",)
"""What stoker and torch call what they share. The fuzzer may run beside."""
_LINES = 25_000
"""An epoch has some thousand lines, and a new trainer's first one some more. The later ones are those of later epochs."""
_CACHES = (None, None, "memory", "name", "disk")


class Remains(NamedTuple):
    """What a trainer left: descriptions, none when all is well. ``line``: where it was killed. ``after_s``: when all was gone."""

    found: list[str]
    line: str
    after_s: float = 0.0


def kill_one(
    seed: int, method: str, *, address: str = "", elsewhere: Callable[[], list[str]] = list
) -> Remains:
    """Start a trainer, wait until it has killed itself, and look around. ``elsewhere`` tells what remains on other nodes."""
    dice = Random(seed)
    folder = Path(tempfile.mkdtemp(prefix="soak-leftovers-"))
    mark = f"{os.getpid()}-{seed}-{method}"
    temporary, files, said = folder / "tmp", folder / "files", folder / "said"
    options = {
        "method": method,
        "address": address,
        "workers": dice.randint(1, 3) if method != RAY else 2,
        "persistent": dice.random() < 0.5,
        "cache": dice.choice(_CACHES) if method != RAY else None,
        "record": dice.random() < 0.3,
        "files": str(files),
        "line": int(_LINES ** dice.random()) if dice.random() < 0.3 else dice.randint(1, _LINES),
    }
    for each in (temporary, files):
        each.mkdir()
    before = _shared()

    def remaining() -> list[str]:
        found = [f"process {each}" for each in _marked(mark)]
        meeting = temporary / f"stoker-{os.getuid()}"
        found += [
            f"temporary file {each.relative_to(temporary)}"
            for each in sorted(temporary.rglob("*"))
            if each != meeting
        ]
        found += [f"half a file {each.name}" for each in files.rglob(".*")]
        found += [f"/dev/shm/{each}" for each in sorted(_shared() - before)]
        return found + elsewhere()

    try:
        with said.open("w") as out:
            trainer = subprocess.Popen(
                [sys.executable, "-m", "tests.soak.leftovers", "--train", json.dumps(options)],
                cwd=_ROOT,
                env={**os.environ, "TMPDIR": str(temporary), _MARK: mark, "STOKER_PROFILES": "off"},
                stdout=out,
                stderr=subprocess.DEVNULL,
            )
        code = trainer.wait(_WITHIN_S)
        began_s = time.monotonic()
        if code != -signal.SIGKILL:
            return Remains([f"the trainer ended with {code} and was not killed"], "")
        while found := remaining():
            if time.monotonic() > began_s + _PATIENCE_S:
                break
            time.sleep(_PAUSE_S)
        return Remains(found, said.read_text().strip(), time.monotonic() - began_s)
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

    cache, files = options["cache"], Path(options["files"])
    dataset: Any = Noisy(40, noisy=cache is None)
    arguments: dict[str, Any] = {
        "batch_size": 4,
        "num_workers": options["workers"],
        "persistent_workers": options["persistent"],
    }
    if options["record"]:
        arguments["record"] = str(files / "run.json")
    if options["method"] == RAY:
        arguments["executor"] = stoker.Ray(address=options["address"])
    else:
        arguments["multiprocessing_context"] = options["method"]
    with stoker.DataLoader(dataset, num_workers=0) as loader:  # what is imported late is imported now
        next(iter(loader))
    stoker.cache  # noqa: B018
    os.register_at_fork(after_in_child=lambda: sys.settrace(None))
    sys.settrace(called)
    if cache is not None:
        place: dict[str, dict[str, Any]] = {
            "memory": {},
            "name": {"name": f"leftovers-{os.getpid()}"},
            "disk": {"path": files / "store"},
        }
        dataset = stoker.cache(dataset, **place[cache])
    loader = stoker.DataLoader(dataset, **arguments)
    for _ in range(3):
        for _ in loader:
            pass
    os.write(1, b"after the last epoch\n")
    os.kill(os.getpid(), signal.SIGKILL)


class Tally:
    """Counts trainers and what they left."""

    def __init__(self) -> None:
        self.kills: Counter[str] = Counter()
        self.wrong = self.late = 0
        self.longest_s = 0.0

    def add(self, seed: int, method: str, remains: Remains) -> None:
        """Take one in, and print what it left."""
        self.kills[method] += 1
        self.longest_s = max(self.longest_s, remains.after_s)
        if remains.found:
            self.wrong += 1
            print(f"seed {seed}, {method}, killed at {remains.line}:", flush=True)
            print("\n".join(f"  {each}" for each in remains.found), flush=True)
        elif remains.after_s > PROMISED_S:
            self.late += 1
            print(
                f"seed {seed}, {method}, killed at {remains.line}: gone after {remains.after_s:.1f} s",
                flush=True,
            )

    def summary(self) -> str:
        """All in one line."""
        told = ", ".join(f"{method} {count}" for method, count in self.kills.items())
        return (
            f"{self.kills.total()} kills ({told}): something remained after {self.wrong}; "
            f"all was gone later than {PROMISED_S:.0f} s after {self.late}, and after {self.longest_s:.2f} s at the latest"
        )


def main() -> int:
    """Kill, print what remains, and say by the exit code whether anything does."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.leftovers", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="how many (default: 200)")
    parser.add_argument("--seed", type=int, default=0, help="what everything is drawn from (default: 0)")
    parser.add_argument("--methods", default=",".join(METHODS), help="in turn (default: %(default)s)")
    parser.add_argument("--ray", type=int, default=0, metavar="KILLS", help="so many more, on a Ray cluster")
    parser.add_argument(
        "--minutes", type=float, default=1e6, help="stop after so long, however many there were"
    )
    parser.add_argument("--train", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train is not None:
        train(options.train)
        return 0
    ends_s = time.monotonic() + 60 * options.minutes
    tally = Tally()
    methods = options.methods.split(",")
    for seed in range(options.seed, options.seed + options.kills):
        if time.monotonic() > ends_s:
            break
        method = methods[seed % len(methods)]
        tally.add(seed, method, kill_one(seed, method))
    if options.ray:
        from tests.ray.stage import run

        found = run("scenarios.trainers_die", within_s=60.0 + 30.0 * options.ray, kills=options.ray)
        for seed, remains in enumerate(found["remains"]):
            tally.add(seed, RAY, Remains(*remains))
    print(tally.summary(), flush=True)
    return 1 if tally.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
