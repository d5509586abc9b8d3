"""Error logs for ``stoker explain``: tracebacks with junk in and around them."""

from __future__ import annotations

import io
import json
from pathlib import Path
from random import Random

from stoker._tools.doctor.explain import explain_log
from stoker._tools.doctor.reading import logs
from tests.fuzz import mutation
from tests.fuzz.format import Format

_CORPUS = Path(__file__).parents[2] / "unit" / "doctor" / "corpus"


def _seeds() -> list[bytes]:
    return [each.read_bytes() for each in sorted(_CORPUS.glob("STK*.txt"))]


def _explain(data: bytes, _: Path) -> None:
    found = explain_log(logs.of_file(io.BytesIO(data)))
    json.dumps(found.as_dict())
    str(found)
    found._repr_markdown_()
    found._repr_html_()


_MARKS = (
    b"Traceback (most recent call last):\n", b"\x1b[31m", b'  File "x.py", line 3, in f\n', b"RuntimeError: ", b"\\n  File ",
    b'{"log": "', b"[rank0]: ", b"STK201", b"\r", b"\xff\xfe", b"(" * 200, b" " * 4000, b"a" * 70000, b"| " * 500, b"](file:x)",
    "│".encode(), "─".encode() * 30, b"stoker.errors.WorkerDied: ", b"SIGKILL", b"Errno 28",
)  # fmt: skip


def _mutate(dice: Random, data: bytes) -> bytes:
    if dice.random() < 0.1:
        data = json.dumps({"log": data.decode("utf-8", "replace")}).encode()
    return mutation.any_bytes(dice, data, _MARKS)


FORMATS = (Format("log", _seeds, _explain, (), _mutate, weight=2),)
