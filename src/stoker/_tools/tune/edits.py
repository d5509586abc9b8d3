"""What has to be typed to have a setting: the arguments that change, and nothing else. Pure."""

from __future__ import annotations

from stoker._record.finding import Edit
from stoker._runtime.simulation.setting import Setting
from stoker._tools.tune.facts.target import Target
from stoker.arguments import ARGUMENTS, AUTO, DEFAULT_EXECUTOR

_AUTO = repr(AUTO)
_ABOUT_WORKERS = {each.name for each in ARGUMENTS if each.needs_workers}
"""A patch removes these by itself when it writes ``num_workers=0``, because torch refuses them then."""
_LEFT_OPEN = {repr(each.default) for each in ARGUMENTS if each.tunable and each.name != "num_workers"} | {
    repr(DEFAULT_EXECUTOR)
}
"""The values of arguments that nobody gave."""


def edits(target: Target, recommended: Setting) -> tuple[Edit, ...]:
    """The changes from what the target has now, the one that says it first. Nothing when it has the setting.

    A dataset has no call that could be changed: its one edit shows the call to write.
    """
    if not target.loader:
        return (Edit(call(recommended, target.batch_size), kind="shown"),)
    if recommended == target.setting:
        return ()
    written = dict(target.written)
    wanted = {name: repr(value) for name, value in recommended.arguments().items()}
    changed = {name: value for name, value in wanted.items() if written.get(name) != value}
    if written.get("num_workers") == _AUTO:  # the profile has it
        changed = {
            name: value for name, value in changed.items() if name not in ("num_workers", "prefetch_factor")
        }
    before = ", ".join(
        f"{name}={written[name]}" for name in changed if name in written and not _open(name, written[name])
    )
    found = []
    if changed:
        given = recommended.arguments()
        after = ", ".join(f"{name}={_written(given[name])}" for name in changed)
        found.append(Edit(after, before or None, target.site, "argument"))
    gone = [name for name, value in written.items() if name not in wanted and not _open(name, value)]
    if recommended.workers == 0:
        gone = [name for name in gone if name not in _ABOUT_WORKERS]
    if gone:
        found.append(Edit("", ", ".join(f"{name}={written[name]}" for name in gone), target.site, "argument"))
    if recommended.engine == "stoker" and target.setting.engine == "torch":
        switch = Edit(
            "from stoker import DataLoader", "from torch.utils.data import DataLoader", target.site, "import"
        )
        found.append(switch)
    return tuple(found)


def call(setting: Setting, batch_size: int | None, name: str = "dataset") -> str:
    """A call that makes such a loader."""
    given = {} if batch_size is None else {"batch_size": batch_size}
    arguments = ", ".join(
        f"{key}={_written(value)}" for key, value in {**given, **setting.arguments()}.items()
    )
    return f"{'stoker' if setting.engine == 'stoker' else 'torch.utils.data'}.DataLoader({name}, {arguments})"


def _written(value: object) -> str:
    """As most people would: texts in double quotes."""
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _open(name: str, value: str) -> bool:
    """Whether an argument is as if nobody had given it. torch's own loader fills in a ``prefetch_factor`` of 2."""
    if name == "num_workers":
        return False
    return value in _LEFT_OPEN or name == "persistent_workers" or (name == "prefetch_factor" and value == "2")
