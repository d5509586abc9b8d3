"""Row 7 of the failures, for Python objects: one copy serves all workers, under every start method, and nothing of it remains."""

from __future__ import annotations

import gc
import glob
import os
import select
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from torch.utils.data import Dataset

import stoker
from stoker._pickling.segment import find
from tests.fault.rows import PATIENCE_S
from tests.fault.test_rows_memory import own_bytes

PATHS = 240_000


class Paths(Dataset[Any]):
    """Looks at every path of a long list, and says how much memory its process has for itself."""

    def __init__(self) -> None:
        self.paths = [
            f"/data/of/some/length/train/{number % 1000:04}/{number:08}.jpg" for number in range(PATHS)
        ]

    def __len__(self) -> int:
        return PATHS

    def __getitems__(self, indices: list[int]) -> list[tuple[int, int, int]]:
        letters = sum(len(self.paths[index]) for index in indices)
        return [(os.getpid(), letters, own_bytes("Private_Dirty:"))]


def growth_bytes(dataset: Any) -> int:
    """How much memory the workers of one epoch took for themselves after their first batch, all together.

    The collector rests: it writes to every object of this process, and what was shared with workers is then theirs alone.
    """
    seen: dict[int, list[int]] = {}
    gc.disable()
    try:
        for pids, letters, own in stoker.DataLoader(
            dataset, batch_size=8192, num_workers=2, multiprocessing_context="fork"
        ):
            assert letters.tolist()[0] > 0
            seen.setdefault(pids.tolist()[0], []).append(own.tolist()[0])
    finally:
        gc.enable()
    return sum(max(sizes) - sizes[0] for sizes in seen.values())


def test_reading_shared_paths_makes_them_nobodys_own() -> None:
    """Row 7: RAM climbs all epoch because reference counts are written into shared pages. With share it does not."""
    dataset = Paths()
    kept = growth_bytes(dataset)
    assert kept > PATHS * 50  # all but each worker's first batch, which is where the measuring starts
    stoker.share(dataset)
    assert growth_bytes(dataset) < kept // 4


ROWS = 20_000


class Everything(Dataset[Any]):
    """One of each kind, read in a worker, which also says what lies in a segment there."""

    def __init__(self) -> None:
        self.names = [f"name {row}" for row in range(ROWS)]
        self.table = {name: (row, name) for row, name in enumerate(self.names)}
        self.known = set(self.names)
        self.array = np.arange(ROWS * 2.0).reshape(ROWS, 2)
        self.columns = np.asfortranarray(self.array)
        self.tensor = torch.arange(ROWS)
        self.tail = self.tensor[10:]
        self.frame = pd.DataFrame({
            "number": np.arange(ROWS), "text": pd.Series(self.names, dtype=object), "day": pd.date_range("2020", periods=ROWS),
        })  # fmt: skip
        self.arrow = pa.table({"number": np.arange(ROWS), "text": self.names})

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        row = 1000 + index
        name = self.names[row]
        values = [name, self.table[name], name in self.known, "other" in self.known, self.array[row].tolist(),
                  self.columns[row].tolist(), int(self.tensor[row]), int(self.tail[row]), self.frame["number"][row],
                  self.frame["text"][row], str(self.frame["day"][row].date()), self.arrow["text"][row].as_py()]  # fmt: skip
        memory = {
            "array": (self.array.ctypes.data, self.array.nbytes),
            "columns": (self.columns.ctypes.data, self.columns.nbytes),
            "tensor": (self.tensor.data_ptr(), self.tensor.nbytes),
            "frame number": (self.frame["number"].to_numpy().ctypes.data, ROWS * 8),
            "frame day": (self.frame["day"].array.asi8.ctypes.data, ROWS * 8),
            "frame text": _place(self.frame["text"].array._pa_array),
            "arrow number": _place(self.arrow["number"]),
            "arrow text": _place(self.arrow["text"]),
        }
        outside = [what for what, (address, nbytes) in memory.items() if find(address, nbytes) is None]
        one_storage = self.tail.untyped_storage().data_ptr() == self.tensor.untyped_storage().data_ptr()
        kinds = [type(each).__name__ for each in (self.names, self.table, self.known, self.array)]
        return os.getpid(), values, outside, one_storage, kinds


def _place(column: Any) -> tuple[int, int]:
    buffer = column.chunk(0).buffers()[-1]
    return buffer.address, buffer.size


def whole(rows: Any) -> Any:
    return rows


def test_shared_data_travels_as_a_descriptor() -> None:
    dataset = stoker.share(Everything())
    loader = stoker.DataLoader(
        dataset, batch_size=2, num_workers=1, collate_fn=whole, multiprocessing_context="forkserver"
    )
    rows = [row for batch in loader for row in batch]
    expected = [dataset[index] for index in range(4)]
    for (pid, *found), (own_pid, *here) in zip(rows, expected, strict=True):
        assert pid != own_pid
        assert found == here
    assert rows[0][2:] == ([], True, ["SharedList", "SharedDict", "SharedSet", "SharedArray"])


TRAINING = """
    import os, sys
    import stoker

    class Names:
        def __init__(self):
            self.names = [f"name {row}" for row in range(20_000)]
        def __len__(self):
            return len(self.names)
        def __getitem__(self, index):
            return os.getpid(), self.names[index]

    if __name__ == "__main__":
        dataset = stoker.share(Names())
        facts = os.fstat(dataset.names._segment.fd)
        loader = stoker.DataLoader(dataset, num_workers=2, multiprocessing_context="fork")
        iterator = iter(loader)
        pids = set()
        while len(pids) < 2:
            pids.update(next(iterator)[0].tolist())
        print(facts.st_ino, *pids, flush=True)
        sys.stdin.readline()
"""


def mapped_by(inode: str) -> list[str]:
    """The processes that map the segment of this number."""
    found = []
    for name in glob.glob("/proc/[0-9]*/maps"):
        try:
            lines = Path(name).read_text().splitlines()
        except OSError:  # it ended meanwhile, or is somebody else's
            continue
        if any("stoker-share" in line and line.split()[4] == inode for line in lines):
            found.append(name)
    return found


def test_nothing_remains_of_shared_data_when_everybody_is_killed(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(textwrap.dedent(TRAINING))
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    shm_before = set(os.listdir("/dev/shm"))
    with subprocess.Popen(
        [sys.executable, "train.py"], cwd=tmp_path, env={**os.environ, "TMPDIR": str(temporary)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as parent:  # fmt: skip
        assert parent.stdout is not None
        inode, *pids = parent.stdout.readline().split()
        watches = [os.pidfd_open(int(pid)) for pid in pids]
        try:
            assert len(mapped_by(inode)) >= 3
            parent.send_signal(signal.SIGKILL)
            parent.wait(PATIENCE_S)
            for watch in watches:
                assert select.select([watch], [], [], PATIENCE_S)[0], "a worker outlived its parent"
        finally:
            for watch in watches:
                os.close(watch)
    left = set(os.listdir("/dev/shm")) - shm_before
    of_fuzzing = "stoker-fuzz-"  # a folder of the tests that run beside this one
    assert not [name for name in left if "stoker" in name and not name.startswith(of_fuzzing)]
    assert not [path for path in temporary.rglob("*") if "stoker" in path.name and path.is_file()]
    assert mapped_by(inode) == []
