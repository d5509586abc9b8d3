"""Readers that are wrong, each in one way: the guard has to notice. They are no formats, and asked for by name only."""

from __future__ import annotations

import os
import pickle
import signal
from pathlib import Path
from typing import Any

from tests.fuzz.format import Format, Reader


class _Sample:
    """Something to unpickle."""


def _traceback(data: bytes, _: Path) -> None:
    raise KeyError("x")


def _hang(data: bytes, _: Path) -> None:
    while True:
        pass


def _memory(data: bytes, _: Path) -> None:
    bytearray(1 << 34)


def _write(data: bytes, folder: Path) -> None:
    (folder.parent / "stoker-fuzz-self-test").touch()
    (folder.parent / "stoker-fuzz-self-test").unlink()


def _unpickle(data: bytes, _: Path) -> None:
    pickle.loads(pickle.dumps(_Sample()))


def _silent(data: bytes, _: Path) -> None:
    raise ValueError


def _death(data: bytes, _: Path) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


_READERS: dict[str, Reader] = {
    "traceback": _traceback,
    "hang": _hang,
    "memory": _memory,
    "write": _write,
    "unpickle": _unpickle,
    "silent": _silent,
    "death": _death,
}


def _late(read: Reader) -> Any:
    """Whole inputs are read as they should be."""
    return lambda data, folder: None if data == b"whole" else read(data, folder)


def broken() -> dict[str, Format]:
    """By name."""
    return {
        f"self-test-{name}": Format(
            f"self-test-{name}", lambda: [b"whole"], _late(read), (ValueError,), lambda _, data: data + b"!"
        )
        for name, read in _READERS.items()
    }
