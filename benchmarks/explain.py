"""``python -m benchmarks.explain``: what reading a long log costs, and whether nasty texts cost more than ordinary ones.

A log of 50 MB (``--megabytes``) with one failure in its middle is read as ``stoker explain`` reads a file. Texts that repeat what
patterns look for are read at two lengths: a pattern that backtracks without bounds would show as a ratio far above 2.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Iterator
from itertools import islice

from stoker._tools.doctor.explain import explain, explain_log
from stoker._tools.doctor.reading import logs

_FAILURE = "RuntimeError: DataLoader worker (pid 4024) is killed by signal: Killed. \n"
_NASTY = {
    "blank lines": "\n",
    "spaces": " ",
    "one word": "x",
    "brackets": "[(",
    "escapes": "\x1b]",
    "JSON": "{",
    "frames": '  File "a.py", line 3, in collate\n',
    "tracebacks": "Traceback (most recent call last):\n",
    "workers": "worker (pid ",
    "pickles": "Can't pickle <function ",
    "shared memory": "unable to open shared memory object ",
    "errors": "KeyError: ",
}


def lines(megabytes: int) -> Iterator[str]:
    """A training log: steps, a warning of somebody's every 50 lines, and one failure half way."""
    count = megabytes * 14_000
    for number in range(count):
        if number == count // 2:
            yield _FAILURE
        if number % 50:
            yield f"2026-01-01 10:00:{number % 60:02},123 INFO step {number} loss 0.3141 lr 1e-4 it/s 3.2\n"
        else:
            yield f"2026-01-01 10:00:00,1 WARNING worker {number % 8}: Error reading, once more\n"


def seconds(text: str) -> float:
    began = time.perf_counter()
    explain(text)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description="What reading a long log costs.")
    parser.add_argument("--megabytes", type=int, default=50)
    options = parser.parse_args()
    explain("nothing")  # imports, compiled patterns
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with tempfile.TemporaryFile() as file:
        pieces = lines(options.megabytes)
        while chunk := "".join(islice(pieces, 10_000)):
            file.write(chunk.encode())
        nbytes = file.tell()
        file.seek(0)
        began = time.perf_counter()
        log = logs.of_file(file)
        read_s = time.perf_counter() - began
        found = explain_log(log)
        whole_s = time.perf_counter() - began
    after_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        f"{nbytes / 1e6:.0f} MB: {found.code} in line {found.line_number}; read in {read_s:.1f} s, answered after {whole_s:.1f} s"
    )
    print(
        f"kept {len(log.text) / 1e3:.0f} kB of it; the process grew by {(after_kib - before_kib) / 1024:.0f} MiB"
    )
    for name, piece in _NASTY.items():
        once, twice = (piece * (size // len(piece)) for size in (150_000, 300_000))
        first = min(seconds(once) for _ in range(2))
        print(
            f"{name:14} 300 kB in {(second := min(seconds(twice) for _ in range(2))):.2f} s, {second / first:.1f} times half of it"
        )


if __name__ == "__main__":
    main()
