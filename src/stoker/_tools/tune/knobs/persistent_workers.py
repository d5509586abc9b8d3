"""``persistent_workers``: whether workers outlive an epoch."""

from __future__ import annotations

from typing import Any

from stoker._runtime.simulation.setting import Setting
from stoker._tools.tune.knobs.knob import Knob


class PersistentWorkers(Knob):
    """Always True where there are workers: starting them again for every epoch has no advantage. So it is not tried."""

    name = "persistent_workers"
    default = False
    minor = True

    def value(self, setting: Setting) -> bool:
        return setting.workers > 0

    def put(self, setting: Setting, value: Any) -> Setting:
        """The same setting: the value follows from the number of workers."""
        return setting

    def is_left_open(self, written: str) -> bool:
        return True

    def effort(self, setting: Setting) -> int:
        """Return 0: it comes with the workers."""
        return 0

    def words(self, setting: Setting) -> str:
        return ""
