"""``executor``: whether workers are processes or threads."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from stoker._runtime.simulation.setting import Setting
from stoker._runtime.simulation.work import Host, Work
from stoker._tools.tune.knobs.knob import Knob
from stoker.arguments import DEFAULT_EXECUTOR

if TYPE_CHECKING:
    from stoker._tools.tune.model.candidates import KnobContext

_THREADS_HELP = 1.6
"""If two threads make samples this much faster than one, the GIL does not limit them."""
_MOSTLY_WAITING = 0.3
"""With more of a batch's time off the CPU, the gain of two threads says nothing about computing."""


class ExecutorKnob(Knob):
    """Threads are tried where they can help: samples that wait, native code that releases the GIL, or no GIL."""

    name = "executor"
    field = "executor"
    default = DEFAULT_EXECUTOR

    def read(self, loader: Any) -> str:
        return getattr(loader, self.name, None) or self.default

    def is_left_open(self, written: str) -> bool:
        return written in ("None", repr(self.default))

    def first(self, baseline: Setting, own: Setting, context: KnobContext) -> list[Setting]:
        if not context.bounds.threads or context.work.keeps_batches:
            return []
        gain = context.work.threads_gain or 1.0
        if not (context.mostly_waits or gain > _THREADS_HELP or not context.host.gil):
            return []
        threads = replace(own, executor="thread", start_method=None)
        return [context.enough_workers(threads, max(2 * context.most_workers, 2))]

    def replayed_work(self, setting: Setting, host: Host, work: Work) -> Work:
        return threads_take_turns(host, work) if setting.kind.threads else work

    def words(self, setting: Setting) -> str:
        """Nothing: ``num_workers`` names the workers as threads."""
        return ""


def threads_take_turns(host: Host, work: Work) -> Work:
    """The work for a replay with threads that mostly wait.

    Two such threads are twice as fast as one even if the GIL lets only one of them compute. So the replay assumes that it does.
    """
    if host.gil and work.off_share > _MOSTLY_WAITING:
        return replace(work, threads_gain=1.0)
    return work
