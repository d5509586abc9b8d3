"""What every leg does around a scenario: a folder, the leak guard, findings for whatever is raised, receipts."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing.process
import os
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stoker._tools.verify.verification import verify
from stoker.testing import holdings, leaks_since
from tests.soak.account import Account

GRACE_S = 30.0
"""How long a busy machine may take to end a process or a thread that was told to."""

_PART = ("digest", "samples_digest", "batches", "samples", "failed_count", "bad_count")


@contextlib.contextmanager
def accounted(account: Account) -> Iterator[Path]:
    """Play in the block; it gets an empty folder. Raises nothing that it led to: findings are in the account."""
    before, files = holdings(), set(os.listdir(tempfile.gettempdir()))
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        try:
            yield Path(folder)
        except Exception:
            account.find("raised", traceback.format_exc())
    for _ in range(3):  # objects with finalizers in cycles go one collection after the other
        gc.collect()
    for leak in leaks_since(before, grace_s=GRACE_S):
        account.find("leaked", leak)
    deadline_s = time.monotonic() + GRACE_S
    while (left := _temporary_files() - files) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    for name in sorted(left):
        account.find("leaked", f"temporary file {name}")
    account.elapsed_s = time.monotonic() - began_s
    gc.collect()
    account.resident_bytes, account.shared_bytes = _memory()


def check_receipt(account: Account, found: Any, expected: Any, folder: Path) -> None:
    """Both receipts tell of the same batches, and `stoker verify` agrees. Samples may only be missing if batches were errors."""
    different = [name for name in _PART if getattr(found, name) != getattr(expected, name)]
    if different:
        told = ", ".join(
            f"{name} {getattr(found, name)}, not {getattr(expected, name)}" for name in different
        )
        account.find("receipt", told)
    for name, receipt in (("found", found), ("expected", expected)):
        path = folder / f"{name}.receipt"
        path.unlink(missing_ok=True)
        receipt.save(path)
    verified(account, folder / "found.receipt", whole=not expected.failed_count)
    (folder / "expected.receipt").unlink()


def verified(account: Account, *paths: Path, whole: bool = True) -> None:
    """`stoker verify` finds nothing wrong in these receipts. Not ``whole``: samples are missing, for batches were errors."""
    account.receipts += 1
    for answer in verify(paths).answers:
        if answer.level == "fault" and (whole or answer.code != "wrong-samples"):
            account.find("receipt", f"stoker verify: {answer}")


def _temporary_files() -> set[str]:
    """All but the folders that last: the fork server's, and the one in which processes of this user meet."""
    lasting = multiprocessing.process.current_process()._config.get("tempdir") or ""  # type: ignore[attr-defined]
    return set(os.listdir(tempfile.gettempdir())) - {os.path.basename(lasting), f"stoker-{os.getuid()}"}


def _memory() -> tuple[int, int]:
    """What this process has in memory, and how much of that is shared: our arenas, when any are left."""
    lines = Path("/proc/self/status").read_text().splitlines()
    kib = {
        key: int(value.split()[0])
        for key, _, value in (line.partition(":") for line in lines)
        if "Rss" in key
    }
    return 1024 * sum(kib[key] for key in ("RssAnon", "RssFile", "RssShmem")), 1024 * kib["RssShmem"]
