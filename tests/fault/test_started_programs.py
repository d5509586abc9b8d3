"""Programs that a dataset starts, and that stay: nothing of the loader is open in them."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

import stoker

LIST = "for fd in /proc/self/fd/*; do readlink $fd || true; done"


class Starts:
    """Starts a program the careless way, which passes on every descriptor that allows it. A sample is what it has open."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> list[str]:
        listed = subprocess.run(
            ["sh", "-c", LIST], capture_output=True, text=True, close_fds=False, check=True
        )
        return listed.stdout.split()


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_program_of_a_worker_holds_nothing_of_the_loader(method: str) -> None:
    """Under spawn and forkserver, it once kept arena, status page and sockets alive after ``close()``."""
    options: dict[str, Any] = {"batch_size": None, "num_workers": 1, "multiprocessing_context": method}
    dataset: Any = Starts()
    with stoker.DataLoader(dataset, **options) as loader:
        for opened in loader:
            assert opened
            ours = [name for name in opened if name.startswith(("/memfd:", "socket:", "anon_inode:"))]
            assert ours == []
