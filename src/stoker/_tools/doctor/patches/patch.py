"""Turns findings into a patch of one file. Pure: source text and findings in, new text out.

What an edit's ``after`` means depends on its kind (``EDITS`` in ``_record/finding.py``); ``kind_of`` says what one without a kind
looks like. Edits are made one after another on what the one before left. Of two that contradict each other the first wins; one
that cannot be made safely is refused with its reason. A file that was patched is not changed by the same findings again.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stoker._record.finding import Edit
from stoker._tools.doctor.patches import calls, guard, statements
from stoker._tools.doctor.patches.source import Refused, Replacement, SourceText
from stoker.arguments import ARGUMENTS

_VARIABLE = re.compile(
    r"""os\.environ(?:\.setdefault\(\s*|\[)["'](?P<name>\w+)["'](?:,\s*|\]\s*=\s*)["'](?P<value>[^"'\\]*)["']\)?"""
)
_ABOUT_WORKERS = tuple(
    each.name for each in sorted(ARGUMENTS, key=lambda each: each.positional) if each.needs_workers
)
"""Keyword-only ones come first: a refusal names the first of those that ``**more`` may contain."""
_PATCHABLE = {each.name for each in ARGUMENTS if each.patchable}
_CACHE = re.compile(r"(?:\w+ = )?(?:stoker\.)?cache\(\w+(?P<rest>(?:, \w+=[^()]*)?)\)")
_SHELL = re.compile(r"(?:export )?(?P<name>[A-Z][A-Z0-9_]*)=(?P<value>[\w.,:-]*)")


@dataclass(frozen=True, slots=True)
class WantedEdit:
    """An edit that a finding asks for. ``line`` is where the loader is made in this file; None: unknown."""

    code: str
    edit: Edit
    line: int | None = None


@dataclass(frozen=True, slots=True)
class RefusedEdit:
    """An edit that was not made, and why."""

    code: str
    edit: Edit
    reason: str


@dataclass(frozen=True, slots=True)
class Patched:
    """The text as it came out. ``made`` are the codes of findings that changed it."""

    text: str
    made: tuple[str, ...]
    refused: tuple[RefusedEdit, ...]


def kind_of(edit: Edit) -> str:
    """Its kind, or what it looks like: "shown" when it is nothing that could be typed into the file."""
    if edit.kind:
        return edit.kind
    after = edit.after.strip()
    if _VARIABLE.fullmatch(after) or _SHELL.fullmatch(after):
        return "environment"
    if re.match(r"(import stoker|from stoker import DataLoader)\b", after):
        return "import"
    if re.match(r"(stoker\.)?share\(", after):
        return "share"
    if _CACHE.fullmatch(after):
        return "cache"
    if after.startswith("if __name__"):
        return "guard"
    try:
        names = calls.keyword_arguments(after or edit.before or "")
    except Refused:
        return "shown"
    return "argument" if names and set(names) <= _PATCHABLE else "shown"


def patched(text: str, wanted: Sequence[WantedEdit]) -> Patched:
    """The text with all edits made that can be. Raises SyntaxError when the text is no Python to begin with."""
    SourceText(text).tree  # noqa: B018
    pending = list(wanted)
    made: dict[str, None] = {}
    refused: list[RefusedEdit] = []
    settled: dict[tuple[int | None, str], str] = {}
    for place, each in enumerate(wanted):
        try:
            _agree(settled, each)
            changed, moved = text, pending
            for edit in (each.edit, *_implied(each.edit)):
                changed, moved = _step(changed, moved, place, edit)
        except Refused as refusal:
            refused.append(RefusedEdit(each.code, each.edit, str(refusal)))
            continue
        except SyntaxError:
            refused.append(RefusedEdit(each.code, each.edit, "the file would no longer be Python"))
            continue
        # One function has the statements of all findings about a loader's workers: the first edit made it.
        if changed != text or (kind_of(each.edit) == "init" and made):
            made[each.code] = None
        text, pending = changed, moved
    return Patched(text, tuple(made), tuple(refused))


def _step(text: str, pending: list[WantedEdit], place: int, edit: Edit) -> tuple[str, list[WantedEdit]]:
    """One edit made: the text, and all edits where they are then. Raises Refused, SyntaxError."""
    source = SourceText(text)
    asked = WantedEdit(pending[place].code, edit, pending[place].line)
    replacements = _MAKERS[kind_of(edit)](source, asked, pending)
    changed = source.changed(replacements)
    ast.parse(changed)
    return changed, [_moved(each, source, replacements) for each in pending]


def _implied(edit: Edit) -> list[Edit]:
    """What has to go as well: without workers, torch refuses what is about them."""
    if (
        kind_of(edit) != "argument"
        or not edit.after
        or calls.keyword_arguments(edit.after).get("num_workers") != "0"
    ):
        return []
    return [Edit("", f"{name}=...", edit.site, "argument") for name in _ABOUT_WORKERS]


def _agree(settled: dict[tuple[int | None, str], str], wanted: WantedEdit) -> None:
    """Note what an edit settles. Raises Refused when another has settled it otherwise."""
    kind, line = kind_of(wanted.edit), wanted.line
    if kind == "argument" and wanted.edit.after:
        values = calls.keyword_arguments(wanted.edit.after)
        if values.get("num_workers") == "0":
            values |= {name: values.get(name, "") for name in _ABOUT_WORKERS}
    elif kind == "argument":
        values = dict.fromkeys(_removed(wanted.edit), "")
    elif kind == "environment":
        name, value = _variable(wanted.edit)
        values, line = {f"${name}": value}, None
    else:
        return
    for name, value in values.items():
        other = settled.get((line, name), value)
        if other != value:
            raise Refused(
                f"another finding asks for {name}={other}" if other else f"another finding leaves out {name}"
            )
    settled.update({(line, name): value for name, value in values.items()})


def _moved(wanted: WantedEdit, source: SourceText, replacements: list[Replacement]) -> WantedEdit:
    """The same edit, its line where it is after what was inserted above it."""
    if wanted.line is None:
        return wanted
    start = source.line_start(wanted.line)
    shift = sum(
        each.text.count("\n") - source.text.count("\n", each.start, each.end)
        for each in replacements
        if each.start <= start
    )
    return WantedEdit(wanted.code, wanted.edit, wanted.line + shift)


def _argument(source: SourceText, wanted: WantedEdit, pending: Sequence[WantedEdit]) -> list[Replacement]:
    call = calls.loader_call(source, wanted.line)
    if not wanted.edit.after:
        return [each for name in _removed(wanted.edit) for each in calls.taken_out(source, call, name)]
    values = calls.keyword_arguments(wanted.edit.after)
    changes = [calls.put(source, call, name, value) for name, value in values.items()]
    new = [name for name in values if calls.given(call, name) is None]
    if len(new) > 1:  # they are added as one, at one place
        changes = [calls.put(source, call, name, values[name]) for name in values if name not in new]
        changes.append(calls.added(source, call, [f"{name}={values[name]}" for name in new]))
    return [each for change in changes for each in change]


def _share(source: SourceText, wanted: WantedEdit, pending: Sequence[WantedEdit]) -> list[Replacement]:
    call = calls.loader_call(source, wanted.line)
    wrapping = calls.wrapped(source, call, "stoker.share")
    return [*wrapping, *statements.imported(source, "stoker")] if wrapping else []


def _cache(source: SourceText, wanted: WantedEdit, pending: Sequence[WantedEdit]) -> list[Replacement]:
    found = _CACHE.fullmatch(wanted.edit.after.strip())
    if found is None:
        raise Refused(f"{wanted.edit.after!r} wraps no dataset")
    call = calls.loader_call(source, wanted.line)
    wrapping = calls.wrapped(source, call, "stoker.cache", found["rest"])
    return [*wrapping, *statements.imported(source, "stoker")] if wrapping else []


def _import(source: SourceText, wanted: WantedEdit, pending: Sequence[WantedEdit]) -> list[Replacement]:
    return statements.switched(source, calls.loader_call(source, wanted.line))


def _environment(source: SourceText, wanted: WantedEdit, pending: Sequence[WantedEdit]) -> list[Replacement]:
    return statements.variable(source, *_variable(wanted.edit))


def _init(source: SourceText, wanted: WantedEdit, pending: Sequence[WantedEdit]) -> list[Replacement]:
    """All statements for workers of one loader go into one function."""
    asked = [each for each in pending if kind_of(each.edit) == "init" and each.line == wanted.line]
    lines = dict.fromkeys(line for each in asked for line in each.edit.after.splitlines() if line.strip())
    return statements.initialised(source, calls.loader_call(source, wanted.line), list(lines))


def _guard(source: SourceText, wanted: WantedEdit, pending: Sequence[WantedEdit]) -> list[Replacement]:
    return guard.guarded(
        source, calls.loader_call(source, None).lineno if wanted.line is None else wanted.line
    )


def _shown(source: SourceText, wanted: WantedEdit, pending: Sequence[WantedEdit]) -> list[Replacement]:
    raise Refused("this is not a change of the file that the loader is made in")


def _variable(edit: Edit) -> tuple[str, str]:
    match = _VARIABLE.fullmatch(edit.after.strip()) or _SHELL.fullmatch(edit.after.strip())
    if match is None:
        raise Refused(f"{edit.after!r} sets no variable")
    return match["name"], match["value"]


def _removed(edit: Edit) -> list[str]:
    return list(calls.keyword_arguments(edit.before or ""))


_MAKERS: dict[str, Callable[[SourceText, WantedEdit, Sequence[WantedEdit]], list[Replacement]]] = {
    "argument": _argument,
    "share": _share,
    "cache": _cache,
    "environment": _environment,
    "init": _init,
    "import": _import,
    "guard": _guard,
    "shown": _shown,
}
