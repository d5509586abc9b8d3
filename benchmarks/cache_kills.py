"""Kills writers of sample caches at any line, and counts wrong samples: python -m benchmarks.cache_kills [--kills N].

A writer is a forked process that opens a store, makes samples as a worker does, and keeps them. Half of the writers are killed by
SIGKILL at a line of the cache's own code, all lines that a writer runs in turn; the others at a moment from outside. Several
write at once. In between a reader reads what is found, and compares every byte. At the end a writer that is not killed has to be
able to keep what is missing, and no file may be left over.
"""

from __future__ import annotations

import argparse
import mmap
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset

import stoker
from stoker._runtime.cache import entry as cache_module
from stoker._runtime.cache.dataset import CachedDataset
from stoker._runtime.cache.storage.attaching import StoreHandle

ROWS = 40
AT_ONCE = 5
ROUND = 2
"""Groups of writers before the store is begun anew, so that its creation is interrupted too."""

PLACES = ("memory", "disk", "cached")
_CODE = os.path.dirname(cache_module.__file__) + os.sep
_ENDS_S = 60


class Rows(Dataset[Any]):
    """Samples of 1 to 40 kB, which tell of every wrong byte."""

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> Any:
        return content(index)


class NotKept(Exception):
    """The reader asked for a sample that is not in the store."""


_reading: list[bool] = []
"""Not empty while the reader reads: it makes nothing itself."""


def content(index: int) -> Any:
    """What the sample of an index is."""
    if _reading:
        raise NotKept
    data = torch.frombuffer(bytearray(random.Random(index).randbytes(1000 * (index + 1))), dtype=torch.uint8)
    return data, {"index": index, "name": f"row {index}"}


@dataclass
class KillCounts:
    """What came of it. ``lines`` counts the places in the code at which writers were killed."""

    kills: int = 0
    read: int = 0
    wrong: int = 0
    locked: int = 0
    left: list[str] = field(default_factory=list)
    lines: set[str] = field(default_factory=set)
    all_lines: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        return (
            f"{self.kills} kills at {len(self.lines)} of {self.all_lines} lines and at random moments: {self.read} samples read, "
            f"{self.wrong} wrong, {self.locked} locked, {len(self.left)} left over; {self.seconds:.0f} s"
        )


class KillRun:
    """Kills writers of one kind of store: in memory by name, on a disk, or of a cached function on a disk."""

    def __init__(self, place: str, seed: int, folder: Path) -> None:
        self.counts = KillCounts()
        self._dice = random.Random(seed)
        self._place = place
        self._folder = folder
        self._rounds = 0
        self._cache: Any = None
        self._lines: Counter[str] = Counter()
        self._deck: list[str] = []

    def run(self, kills: int) -> KillCounts:
        """Kill so many writers."""
        began = time.perf_counter()
        while self.counts.kills < kills:
            self._begin()
            for _ in range(ROUND):
                self._kill_group(self._dice.randint(1, AT_ONCE))
                self._read()
            self._end()
        self.counts.seconds = time.perf_counter() - began
        return self.counts

    def _begin(self) -> None:
        """A store that does not exist yet. The proof of the dataset was made before: it writes nothing."""
        self._rounds += 1
        if self._place == "cached":
            self._cache = stoker.cached(content, "64MiB", path=self._folder / f"store{self._rounds}")
        else:
            where: dict[str, Any] = (
                {"name": f"kills-{os.getpid()}-{self._rounds}"}
                if self._place == "memory"
                else {"path": self._folder / f"store{self._rounds}"}
            )
            self._cache = stoker.cache(Rows(), "64MiB", **where)
        if not self._lines:
            self._lines = self._count_lines()
        self._close()
        for path in self._folder.glob(f"store{self._rounds}/*"):
            path.unlink()

    def _close(self) -> None:
        """Close this process's own store; it is opened again when somebody asks. In memory the last one out frees it."""
        handle: StoreHandle = self._cache._handle
        handle.open().close()
        self._renew()

    def _renew(self) -> None:
        """The same cache as another process has it: with a handle of its own, not open yet."""
        old = self._cache
        handle = StoreHandle(old._handle.plan)
        if self._place == "cached":
            self._cache = type(old)(old.function, handle, old._facts)
        else:
            self._cache = CachedDataset(old.dataset, handle, old._cache.facts)

    def _fetch(self, index: int) -> Any:
        return self._cache(index) if self._place == "cached" else self._cache[index]

    # Writers

    def _write(self, dice: random.Random) -> None:
        """The life of a writer."""
        self._renew()
        for _ in range(2):
            for index in dice.sample(range(ROWS), ROWS):
                self._fetch(index)

    def _count_lines(self) -> Counter[str]:
        """The lines that a writer runs, and how often."""
        self._close()
        reading, writing = os.pipe()
        pid = os.fork()
        if not pid:
            seen: list[str] = []
            _trace(lambda line: seen.append(line))
            self._write(random.Random(0))
            sys.settrace(None)
            with open(writing, "w") as stream:
                stream.write("\n".join(seen))
            os._exit(0)
        os.close(writing)
        with open(reading) as stream:
            found = Counter(stream.read().splitlines())
        os.waitpid(pid, 0)
        self.counts.all_lines = len(found)
        return found

    def _kill_group(self, count: int) -> None:
        reached = mmap.mmap(-1, count)
        pids = {}
        for number in range(count):
            line = self._draw_line() if self._dice.random() < 0.5 else None
            seed = self._dice.random()
            pid = os.fork()
            if not pid:
                self._child(line, random.Random(seed), reached, number)
            pids[pid] = line
        self._read()  # while they make the store, or write
        for pid, line in pids.items():
            if line is None:
                time.sleep(self._dice.random() * 0.01)
                os.kill(pid, signal.SIGKILL)
        for number, (pid, line) in enumerate(pids.items()):
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            if status != -signal.SIGKILL:
                raise RuntimeError(f"a writer ended with {status}")
            self.counts.kills += 1
            if line is not None and reached[number]:
                self.counts.lines.add(line[0])
        reached.close()

    def _draw_line(self) -> tuple[str, int]:
        """The next line of the code, until all had their turn; and one of the times that it runs."""
        if not self._deck:
            self._deck = sorted(self._lines)
            self._dice.shuffle(self._deck)
        chosen = self._deck.pop()
        return chosen, self._dice.randrange(self._lines[chosen])

    def _child(
        self, line: tuple[str, int] | None, dice: random.Random, reached: mmap.mmap, number: int
    ) -> None:
        """Never returns."""
        try:
            signal.alarm(_ENDS_S)  # it ends, whatever becomes of us
            if line is not None:
                wanted, left = line[0], [line[1]]

                def step(now: str) -> None:
                    if now == wanted:
                        left[0] -= 1
                        if left[0] < 0:
                            reached[number] = 1
                            os.kill(os.getpid(), signal.SIGKILL)

                _trace(step)
            self._write(dice)
            sys.settrace(None)
            if line is not None:  # others had written before it came to that line
                os.kill(os.getpid(), signal.SIGKILL)
            signal.pause()
        except BaseException:
            sys.settrace(None)
            traceback.print_exc()
        finally:
            os._exit(1)

    # The reader

    def _read(self) -> int:
        """Compare all samples that are kept; return how many there are."""
        kept = 0
        for index in range(ROWS):
            _reading.append(True)
            try:
                data, facts = self._fetch(index)
            except NotKept:
                continue
            finally:
                _reading.clear()
            expected, named = content(index)
            kept += 1
            self.counts.wrong += not (torch.equal(data, expected) and facts == named)
        self.counts.read += kept
        if self._place != "memory":  # the next writers race to open the file
            self._close()
        return kept

    def _end(self) -> None:
        """A writer that is not killed keeps what is missing; and nothing is left."""
        for index in range(ROWS):
            self._fetch(index)
        self.counts.locked += self._read() < ROWS
        self._close()
        for path in sorted(self._folder.rglob("*")):
            if path.is_file() and path.suffix != ".samples":
                self.counts.left.append(path.name)
                path.unlink()
        for path in self._folder.glob("store*/*.samples"):
            path.unlink()


def _trace(step: Any) -> None:
    """Call this at every line of the cache's code."""

    def trace(frame: Any, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(_CODE):
            return None
        if event == "line":
            step(f"{frame.f_code.co_filename}:{frame.f_lineno}")
        return trace

    sys.settrace(trace)


def main() -> int:
    """Print a line for each place. Exit code 1 if a sample was wrong, a store locked, or a file left over."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1000, help="in all, divided by the places")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=PLACES)
    given = parser.parse_args()
    places = [given.only] if given.only else list(PLACES)
    failed = False
    torch.set_num_threads(1)
    for place in places:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            os.environ["XDG_RUNTIME_DIR"] = name  # where the locks are
            counts = KillRun(place, given.seed, folder).run(-(-given.kills // len(places)))
        print(f"{place:<8} {counts}", flush=True)
        for left in sorted(set(counts.left)):
            print(f"         left over: {left}")
        failed |= bool(counts.wrong or counts.locked or counts.left)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
