"""``device``: whether the loader brings batches to the accelerator, ahead of the loop, in one copy each."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from stoker._runtime.simulation.setting import Setting
from stoker._tools.tune.knobs.knob import Knob
from stoker.arguments import AUTO

if TYPE_CHECKING:
    from stoker._tools.tune.model.candidates import KnobContext


class Device(Knob):
    """Kept where the target has it: its step may need batches there. Tried with workers where there is an accelerator.

    It can win only where the user's own step is run: that step copies, and a simulated one does not.
    """

    name = "device"
    needs_workers = False

    def read(self, loader: Any) -> str | None:
        device = getattr(loader, self.name, None)
        return None if device is None else str(device)

    def written(self, loader: Any) -> str:
        return repr(self.read(loader))

    def values(self, best: Setting, context: KnobContext) -> tuple[str, ...]:
        if self.value(best) is not None or not (context.host.accelerator and best.workers):
            return ()
        return (AUTO,)

    def around(self, best: Setting, tried: Collection[Setting], context: KnobContext) -> list[Setting]:
        # Batches that go to the device are not pinned besides.
        return [replace(each, pin=False) for each in super().around(best, tried, context)]
