"""The probe that makes samples in a worker: whose threads compute there."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

import pytest

from stoker._tools.doctor.probes import worker


def test_a_library_that_the_first_sample_imports_is_held_to_one_thread_as_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held: list[int] = []
    cv2 = ModuleType("cv2")
    cv2.setNumThreads = held.append  # type: ignore[attr-defined]
    monkeypatch.delitem(sys.modules, "cv2", raising=False)
    monkeypatch.setattr(importlib, "import_module", {"cv2": cv2}.__getitem__)
    worker._hold_cv2()
    assert held == [0]
