"""``pin_memory``: whether batches lie in page-locked memory, from which an accelerator copies faster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stoker._runtime.simulation.setting import Setting
from stoker._tools.tune.knobs.knob import Knob

if TYPE_CHECKING:
    from stoker._tools.tune.model.candidates import KnobContext


class PinMemory(Knob):
    """Kept where the target has it; tried with workers where there is an accelerator, and batches do not go there anyway."""

    name = "pin_memory"
    field = "pin"
    default = False
    needs_workers = False
    keeps_engine = True
    minor = True

    def read(self, loader: Any) -> bool:
        return bool(loader.pin_memory)

    def is_left_open(self, written: str) -> bool:
        return written in ("None", repr(self.default))

    def values(self, best: Setting, context: KnobContext) -> tuple[bool, ...]:
        there = "device" in dict(best.extra)
        return (True,) if context.host.accelerator and best.workers and not there else ()

    def words(self, setting: Setting) -> str:
        return "pinned" if setting.pin else ""
