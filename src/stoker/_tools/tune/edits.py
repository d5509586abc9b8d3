"""The edits that give a loader another setting: the arguments that change, and nothing else. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from stoker._record.finding import Edit
from stoker._runtime.simulation.setting import Setting
from stoker._tools.tune import knobs
from stoker._tools.tune.facts import Target
from stoker._tools.tune.knobs.knob import Knob
from stoker.arguments import ARGUMENTS, AUTO

_AUTO = repr(AUTO)
_ABOUT_WORKERS = {each.name for each in ARGUMENTS if each.needs_workers}
"""A patch removes these by itself when it writes ``num_workers=0``, because torch refuses them then."""


def edits(target: Target, recommended: Setting) -> tuple[Edit, ...]:
    """The edits that turn the target's setting into the recommended one, the most important first. None if they are equal.

    A dataset has no call to change: its one edit shows the call to write.
    """
    if not target.loader:
        return (Edit(call(recommended, target.batch_size), kind="shown"),)
    if recommended == target.setting:
        return ()
    written = dict(target.written)
    wanted = {name: repr(value) for name, value in recommended.arguments().items()}
    changed = {name: value for name, value in wanted.items() if written.get(name) != value}
    by_name = {each.name: each for each in knobs.KNOBS}
    given = {name: value for name, value in written.items() if not by_name[name].is_left_open(value)}
    if written.get("num_workers") == _AUTO:  # the profile has these
        changed = {name: value for name, value in changed.items() if not by_name[name].in_profile}
    before = ", ".join(f"{name}={given[name]}" for name in changed if name in given)
    found = []
    if changed:
        after = ", ".join(_typed(name, recommended) for name in changed)
        found.append(Edit(after, before or None, target.site, "argument"))
    gone = [name for name in given if name not in wanted]
    if recommended.workers == 0:
        gone = [name for name in gone if name not in _ABOUT_WORKERS]
    if gone:
        found.append(Edit("", ", ".join(f"{name}={written[name]}" for name in gone), target.site, "argument"))
    if recommended.engine == "stoker" and target.setting.engine == "torch":
        switch = Edit(
            "from stoker import DataLoader",
            "from torch.utils.data import DataLoader",
            target.imported,
            "import",
        )
        found.append(switch)
    return tuple(found)


def call(setting: Setting, batch_size: int | None, name: str = "dataset", *, kept: Sequence[str] = ()) -> str:
    """A call that makes a loader with this setting, and with the arguments ``kept``."""
    size = [] if batch_size is None else [f"batch_size={batch_size}"]
    arguments = ", ".join([*size, *kept, *(_typed(each, setting) for each in setting.arguments())])
    return f"{'stoker' if setting.engine == 'stoker' else 'torch.utils.data'}.DataLoader({name}, {arguments})"


def _typed(name: str, setting: Setting) -> str:
    """An argument of a setting, as one types it."""
    knob = next((each for each in knobs.KNOBS if each.name == name), Knob())
    return f"{name}={knob.text(setting.arguments()[name])}"
