"""Fuzzing that is guided by coverage: atheris (the extra `fuzz`) keeps what reaches new code, and damages that further.

The readers are instrumented on import, so atheris has to be set up before any of them is imported.
"""

from __future__ import annotations

import atexit
import shutil
import sys
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from random import Random

from tests.fuzz import mutation
from tests.fuzz.format import Format

_LONGEST = 1 << 16


def available() -> bool:
    """Whether atheris is installed."""
    return find_spec("atheris") is not None


def run(name: str, count: int, seed: int) -> int:
    """Read ``count`` inputs of a format. Ends the process: with 0 when none failed, otherwise with atheris' own code."""
    if not available():
        print("atheris is not installed: pip install 'stoker[fuzz]'", file=sys.stderr)
        return 2
    import atheris

    with atheris.instrument_imports(include=["stoker"]):
        from tests.fuzz import formats

        kind = formats.registry()[name]
    corpus = Path(tempfile.mkdtemp(prefix="stoker-fuzz-corpus-"))
    folder = Path(tempfile.mkdtemp(prefix="stoker-fuzz-"))
    for made in (corpus, folder):
        atexit.register(shutil.rmtree, made, ignore_errors=True)
    for number, data in enumerate(kind.seeds):
        (corpus / f"seed{number}").write_bytes(data)

    def read(data: bytes) -> None:
        try:
            kind.read(data, folder)
        except kind.errors:
            pass
        finally:
            for each in folder.iterdir():
                shutil.rmtree(each) if each.is_dir() else each.unlink()

    options = [f"-runs={count}", f"-seed={seed}", f"-max_len={_LONGEST}", "-timeout=10", "-rss_limit_mb=4096"]
    atheris.Setup(
        [sys.argv[0], *options, "-print_final_stats=1", f"-artifact_prefix={corpus}/", str(corpus)],
        read,
        custom_mutator=_mutator(kind),
    )
    atheris.Fuzz()
    return 0


def _mutator(kind: Format) -> Callable[[bytes, int, int], bytes]:
    """Half of the damage is the format's own; it fails on what is no whole input any more."""
    import atheris

    def mutate(data: bytes, most: int, seed: int) -> bytes:
        dice = Random(seed)
        try:
            if dice.random() < 0.5:
                return kind.mutate(dice, data)[:most]
        except Exception:
            return mutation.any_bytes(dice, data, kind.tokens)[:most]
        mutated: bytes = atheris.Mutate(data, most)
        return mutated

    return mutate
