"""``prefetch_factor``: how many batches each worker makes ahead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stoker._runtime.simulation.setting import Setting
from stoker._tools.tune.knobs.knob import Knob, given

if TYPE_CHECKING:
    from stoker._tools.tune.model.candidates import KnobContext

_USUAL = 2
"""torch's own default, which its loader fills in."""
_DEEPEST = 16


class PrefetchFactor(Knob):
    """The replay chooses it for every setting of the race (``window_for``). The race tries twice as many for the best."""

    name = "prefetch_factor"
    field = "prefetch"
    in_profile = True
    minor = True

    def read(self, loader: Any) -> int | None:
        return None if given(loader.prefetch_factor) is None else int(loader.prefetch_factor)

    def written(self, loader: Any) -> str:
        return repr(given(loader.prefetch_factor))

    def is_left_open(self, written: str) -> bool:
        return written in ("None", repr(_USUAL))

    def values(self, best: Setting, context: KnobContext) -> tuple[int, ...]:
        """Twice as many, if all these batches fit into a quarter of the memory."""
        deeper = 2 * (best.prefetch or _USUAL)
        room = context.host.room_bytes
        needed = deeper * best.workers * max(1, context.work.batch_bytes)
        return (deeper,) if deeper <= _DEEPEST and (room is None or needed <= room // 4) else ()

    def effort(self, setting: Setting) -> int:
        return int(setting.prefetch not in (None, _USUAL))

    def words(self, setting: Setting) -> str:
        """Nothing: it stands with the number of workers, "3 workers × 4"."""
        return ""
