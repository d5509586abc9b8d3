"""A stream from shards: files that workers share out among themselves, and that are taken up where they were left.

python examples/iterable_shards.py                    # some seconds
python examples/iterable_shards.py --num-workers 2 --then 0

Three things are shown. A stream that does not ask which worker it is in gives every line once per worker, as with torch's
loader; stoker's says so, in the log. One that asks gives every line once. And one that can tell where it is goes on after a
stop, with another number of workers: no line is missing, none comes twice.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info

from stoker import DataLoader


def write_shards(folder: Path, shards: int, lines: int) -> list[str]:
    """Files with numbered lines, no two lines the same; not all files have the same length."""
    paths = []
    for shard in range(shards):
        path = folder / f"shard-{shard:03}.txt"
        path.write_text("".join(f"{shard}:{number}\n" for number in range(lines + 7 * shard)))
        paths.append(str(path))
    return paths


class AllLines(IterableDataset[str]):
    """The lines of all shards, in every worker: what goes wrong when nobody shares them out."""

    def __init__(self, paths: list[str]) -> None:
        self.paths = paths

    def __iter__(self) -> Iterator[str]:
        for path in self.paths:
            with open(path) as file:
                yield from map(str.rstrip, file)


class Lines(IterableDataset[str]):
    """The lines of every n-th shard in each of n workers, from the place that was reached."""

    def __init__(self, paths: list[str]) -> None:
        self.paths = paths
        self.left: list[tuple[str, int]] | None = None
        """What this worker still has to read, and from which byte; None before the epoch."""

    def share(self, worker: int, workers: int) -> list[tuple[str, int]]:
        """What a worker has to read in a whole epoch."""
        return [(path, 0) for path in self.paths[worker::workers]]

    def __iter__(self) -> Iterator[str]:
        if self.left is None:
            info = get_worker_info()
            self.left = self.share(0, 1) if info is None else self.share(info.id, info.num_workers)
        while self.left:
            path, offset = self.left[0]
            with open(path) as file:
                file.seek(offset)
                while line := file.readline():
                    self.left[0] = (path, file.tell())
                    yield line.rstrip()
            self.left.pop(0)
        self.left = None

    def state_dict(self) -> dict[str, Any]:
        """Where this worker is. stoker asks for it with every batch, in the worker."""
        return {"left": self.left}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.left = state["left"]

    def __stoker_reshard__(self, states: list[dict[str, Any] | None], workers: int) -> list[dict[str, Any]]:
        """States for another number of workers: what is left of all shards, dealt out anew."""
        left: list[tuple[str, int]] = []
        for worker, state in enumerate(states):
            left += self.share(worker, len(states)) if state is None else state.get("left") or []
        return [{"left": left[worker::workers]} for worker in range(workers)]


def counted(batches: Iterable[list[str]]) -> Counter[str]:
    """How often each line came."""
    return Counter(line for batch in batches for line in batch)


def told(counts: Counter[str], total: int) -> str:
    """What these counts say of an epoch."""
    each = sorted(set(counts.values()))
    return f"{counts.total()} lines, {len(counts)} of {total} different ones, each {' or '.join(map(str, each))} times"


def main() -> None:
    """Show the three streams."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--lines", type=int, default=200, help="of the first shard; the others have more")
    parser.add_argument("--num-workers", type=int, default=2)
    parser.add_argument("--then", type=int, default=1, help="workers of the run that goes on")
    given = parser.parse_args()

    logging.basicConfig(stream=sys.stdout, format="%(levelname)s of %(name)s: %(message)s")
    with tempfile.TemporaryDirectory() as folder:
        paths = write_shards(Path(folder), given.shards, given.lines)
        total = sum(1 for _ in AllLines(paths))
        workers: dict[str, Any] = {"batch_size": 16, "num_workers": given.num_workers}

        print("not shared out:", told(counted(DataLoader(AllLines(paths), **workers)), total))
        print("shared out:", told(counted(DataLoader(Lines(paths), **workers)), total))

        loader = DataLoader(Lines(paths), **workers)
        seen: Counter[str] = Counter()
        for batch in loader:
            seen.update(batch)
            if seen.total() > total // 2:
                break
        state = loader.state_dict()
        loader.close()
        print(f"stopped after {seen.total()} lines with {given.num_workers} workers")
        again = DataLoader(Lines(paths), batch_size=16, num_workers=given.then)
        again.load_state_dict(state)
        print(f"gone on with {given.then}:", told(seen + counted(again), total))


if __name__ == "__main__":
    main()
