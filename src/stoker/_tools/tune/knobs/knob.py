"""A knob: one argument of ``DataLoader`` that the tuner may change. Each module of this package has one.

A knob says which values are worth a trial, how the replay has to see them, what they are called, and how a patch writes them.
The search, the race, the reports and the edits go through the list ``KNOBS``, and name no knob.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from stoker._runtime.simulation.setting import Setting
from stoker._runtime.simulation.work import Host, Work
from stoker.arguments import AUTO, Auto, LeftOpen

if TYPE_CHECKING:
    from stoker._tools.tune.model.candidates import KnobContext


class Knob:
    """Stateless. A subclass has a ``name`` and ``values``, and overrides what is different for its argument.

    The tuner's process calls all methods but ``read`` and ``written``, which run in the sandbox that has the loader.
    """

    name: ClassVar[str]
    """The argument of ``DataLoader``, and the attribute of a loader that has its value."""
    default: ClassVar[Any] = None
    """The value that a loader takes when nobody gives one."""
    field: ClassVar[str | None] = None
    """The field of ``Setting`` that holds the value, if the replay depends on it. None: ``Setting.extra`` holds it."""
    needs_workers: ClassVar[bool] = True
    """Whether the argument means nothing without workers."""
    keeps_engine: ClassVar[bool] = False
    """Whether values are tried on torch's loader too. False: a value is tried on stoker's loader only."""
    in_profile: ClassVar[bool] = False
    """Whether ``num_workers="auto"`` takes the value from the saved profile, so that nothing has to be typed."""
    minor: ClassVar[bool] = False
    """Whether tables name a value but the verdict does not."""

    def value(self, setting: Setting) -> Any:
        """The value in a setting."""
        if self.field is not None:
            return getattr(setting, self.field)
        return dict(setting.extra).get(self.name, self.default)

    def put(self, setting: Setting, value: Any) -> Setting:
        """The setting with another value."""
        if self.field is not None:
            changes: dict[str, Any] = {self.field: value}
            return replace(setting, **changes)
        others = [each for each in setting.extra if each[0] != self.name]
        own = [] if value == self.default else [(self.name, value)]
        return replace(setting, extra=tuple(sorted(others + own, key=lambda each: each[0])))

    def is_changed(self, setting: Setting) -> bool:
        """Whether a setting has another value than the default."""
        return bool(self.value(setting) != self.default)

    def read(self, loader: Any) -> Any:
        """The value of a user's loader."""
        return getattr(loader, self.name, self.default)

    def written(self, loader: Any) -> str:
        """The value of a user's loader, as ``repr`` of what one would type for it. The loader has the attribute."""
        return repr(getattr(loader, self.name))

    def is_left_open(self, written: str) -> bool:
        """Whether ``written`` is the same as not giving the argument. A patch leaves it alone then."""
        return written == repr(self.default)

    def text(self, value: Any) -> str:
        """The value as a patch types it: texts in double quotes."""
        return f'"{value}"' if isinstance(value, str) else repr(value)

    def first(self, baseline: Setting, own: Setting, context: KnobContext) -> list[Setting]:
        """Settings that belong into the first race. ``own`` has what is kept of the baseline, and no workers."""
        return []

    def further(self, own: Setting, context: KnobContext) -> list[Setting]:
        """Settings for the places of the first race that are left."""
        return []

    def values(self, best: Setting, context: KnobContext) -> Sequence[Any]:
        """Values to try with the best setting, the most promising first. The best's own value may be among them."""
        return ()

    def around(self, best: Setting, tried: Collection[Setting], context: KnobContext) -> list[Setting]:
        """Settings that differ from the best one in this knob, the most promising first."""
        base = best if self.keeps_engine else replace(best, engine="stoker")
        own = self.value(best)
        return [self.put(base, value) for value in self.values(best, context) if value != own]

    def replayed_work(self, setting: Setting, host: Host, work: Work) -> Work:
        """What the work becomes with the setting's value, before it is replayed to predict the setting's speed."""
        return work

    def effort(self, setting: Setting) -> int:
        """1 if the value has to be typed and understood. Of settings that are equally fast, the least effort wins."""
        return int(self.is_changed(setting))

    def words(self, setting: Setting) -> str:
        """The value in a row of a table; "" for one that needs no words."""
        return f"{self.name}={self.text(self.value(setting))}" if self.is_changed(setting) else ""

    def phrase(self, setting: Setting) -> str:
        """The value in the verdict, behind "4 workers with"; "" for one that is not named there."""
        return "" if self.minor else self.words(setting)


def given(number: Any) -> Any:
    """A number of a loader as the user gave it: None for one that was left open, "auto" for one that the loader chooses.

    stoker's loader remembers both by the number's type.
    """
    if number is None or isinstance(number, LeftOpen):
        return None
    return AUTO if isinstance(number, Auto) else int(number)
