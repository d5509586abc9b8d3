"""How an explanation looks: on a terminal (at most 24 lines, which read without colour), as Markdown, in a notebook."""

from __future__ import annotations

import re
import sys
import textwrap
from html import escape

from stoker._host.secrets import cleaned
from stoker._record.finding import cut
from stoker._tools.doctor.check import SECTIONS, Check
from stoker._tools.doctor.explain import Explanation, page_of
from stoker._tools.render.code_lines import fitted
from stoker._tools.render.markdown import code, escaped
from stoker._tools.render.terminal import MOST_LINES, WIDEST, width_of

_MARGIN = 10
_SHOWN_CLUES = {
    "frame": "in your code",
    "exception": "exception",
    "index": "dataset index",
    "worker": "worker",
    "pid": "pid",
    "signal": "signal",
    "exit_code": "exit code",
    "file": "file",
    "object": "object",
    "shapes": "shapes",
    "bytes": "bytes",
    "size": "size",
    "start_method": "started by",
    "torch": "torch",
    "system": "system",
}
_MOST_CODE = 9
_LEFT = "text-align:left"
_MOST_CLUES = 7
_CODE_SPAN = re.compile(r"`([^`\n]{1,200})`")


def plain(found: Explanation, width: int = WIDEST) -> str:
    """As text, at most a screen of it."""
    sections = _sections(found)
    lines = _laid_out(sections, width)
    for name in ("Also", "Clues", "Page", "Stoker"):  # what is missed least goes first
        if len(lines) <= MOST_LINES:
            break
        sections = [each for each in sections if each[0] != name]
        lines = _laid_out(sections, width)
    return "\n".join(lines[:MOST_LINES])


def width_of_terminal() -> int:
    """How wide answers may be on this terminal."""
    return width_of(sys.stdout)


def _sections(found: Explanation) -> list[tuple[str, list[str]]]:
    """Names and lines, in the order they are shown."""
    if found.finding is None:
        return _unknown(found)
    finding = found.finding
    evidence = f"line {found.line_number}: {finding.evidence}" if found.line_number else finding.evidence
    return [
        (
            finding.code,
            [f"{bare(found.title)}  ({finding.severity})" if found.title else "not known to this version"],
        ),
        ("Seen", [cut(evidence, 220)]),
        ("Clues", [" · ".join(_clue_texts(found))]),
        ("Here", [f"on this machine: {bare(found.here)}" if found.here else ""]),
        ("Fix", _advice_lines(finding.advice)),
        ("Stoker", [bare(found.prevented)]),
        (
            "Also",
            [
                f"{each.code} {bare(each.title)} (line {each.line_number}): {each.reason}"
                for each in found.also[:3]
            ],
        ),
        ("Page", [f"stoker explain {finding.code}   ({found.page})" if found.page else ""]),
        ("Next", [found.next if found.next != f"stoker explain {finding.code}" else "stoker doctor TARGET"]),
    ]


def _unknown(found: Explanation) -> list[tuple[str, list[str]]]:
    return [
        ("Unknown", ["This is none of the failures that stoker knows, or not in these words."]),
        ("Clues", [" · ".join(_clue_texts(found))]),
        ("Narrow it", [f"{number}  {step}" for number, step in enumerate(found.procedure, 1)]),
        (
            "Also",
            [
                f"{each.code} {bare(each.title)} (line {each.line_number}): {each.reason}"
                for each in found.also[:3]
            ],
        ),
        (
            "Next",
            [f"{found.next}   does all that by itself (TARGET: train.py:loader, package.module:dataset)"],
        ),
    ]


def _advice_lines(advice: str) -> list[str]:
    """What to do: prose, and below it code: behind a tabulator, its language, and another one."""
    prose, _, code = advice.partition("```")
    language = code.partition("\n")[0].strip()
    lines = code.splitlines()[1:-1]
    shown = lines if len(lines) <= _MOST_CODE else [*lines[: _MOST_CODE - 1], "..."]
    return [bare(prose.strip()), *(f"\t{language}\t{line}" for line in shown)]


def _clue_texts(found: Explanation) -> list[str]:
    return [
        f"{word} {cut(found.clues[name], 90)}" for name, word in _SHOWN_CLUES.items() if found.clues.get(name)
    ][:_MOST_CLUES]


def _laid_out(sections: list[tuple[str, list[str]]], width: int, margin: int = _MARGIN) -> list[str]:
    lines: list[str] = []
    for name, texts in sections:
        shown = [text for text in texts if text]
        if not shown:
            continue
        body: list[str] = []
        for text in shown:
            if text.startswith("\t"):
                language, _, code = text[1:].partition("\t")
                body += [f"    {each}".rstrip() for each in fitted(code, width - margin - 4, language)]
                continue
            hang = "   " if re.match(r"\d  ", text) else ""
            body += textwrap.wrap(text, width - margin, subsequent_indent=hang, break_on_hyphens=False) or [
                ""
            ]
        lines += [
            f"{name if number == 0 else '':{margin}}{text}".rstrip() for number, text in enumerate(body)
        ]
    return lines


def bare(text: str) -> str:
    """Without the marks of Markdown."""
    return _CODE_SPAN.sub(r"\1", text)


def markdown(found: Explanation) -> str:
    """For notebooks and issue trackers."""
    if found.finding is None:
        steps = "\n".join(f"{number}. {step}" for number, step in enumerate(found.procedure, 1))
        return (
            "**Not recognised.** This is none of the failures that stoker knows, or not in these words. To narrow it down:\n\n"
            f"{steps}\n\n`{found.next}` does all that by itself."
        )
    finding = found.finding
    parts = [f"**{finding.code}: {found.title or 'not known to this version'}** ({finding.severity})"]
    line = f"line {found.line_number}: " if found.line_number else ""
    parts.append(f"{line}{code(finding.evidence)}")
    told = _clue_texts(found)
    if told:
        parts.append(f"*Clues*: {escaped('; '.join(told))}")
    if found.here:
        parts.append(f"*On this machine*: {found.here}")
    parts.append(
        f"*Fix*: {finding.advice}" if not finding.advice.startswith("```") else f"*Fix*:\n\n{finding.advice}"
    )
    if found.prevented:
        parts.append(f"*stoker*: {found.prevented}")
    if found.also:
        parts.append("\n".join(f"- also {each.code}, {each.title}: {each.reason}" for each in found.also))
    parts.append(f"`{found.next}`")
    return cleaned("\n\n".join(parts))


def html(found: Explanation) -> str:
    """For notebooks: a table of the same sections, without scripts and without styles that fight a dark theme."""
    rows = []
    for name, texts in _sections(found):
        code = "\n".join(escape(text[1:].partition("\t")[2]) for text in texts if text.startswith("\t"))
        shown = "<br>".join(escape(text) for text in texts if text and not text.startswith("\t"))
        shown += f"<pre>{code}</pre>" if code else ""
        if shown:
            rows.append(
                f"<tr><th style='{_LEFT};vertical-align:top'>{escape(name)}</th><td style='{_LEFT}'>{shown}</td></tr>"
            )
    return f"<table>{''.join(rows)}</table>"


def page(check: Check, width: int = WIDEST) -> str:
    """The page of a check, for a terminal: its sections behind a margin, code as code."""
    lines = [
        *textwrap.wrap(f"{check.code} {check.name}: {bare(check.title)}", width, subsequent_indent="  "),
        "",
    ]
    for name in SECTIONS:
        lines.append(name)
        lines += [f"  {line}".rstrip() for line in _prose(check.sections[name], width - 2)]
        lines.append("")
    if check.prevented:
        lines.append("With stoker's loader")
        lines += [f"  {line}" for line in textwrap.wrap(bare(check.prevented), width - 2)]
        lines.append("")
    lines.append(f"Page      {page_of(check)}")
    if check.examine is not None:
        lines.append(f"Check it  stoker doctor TARGET --select {check.code}")
    return "\n".join(lines)


def here_lines(text: str, width: int = WIDEST) -> str:
    """What is below a page: the cause on this machine."""
    return "\n".join(_laid_out([("Here", [bare(text)])], width))


_VERDICT = "stoker report RECORD   shows the verdict with its numbers and the edit"
_KINDS = {
    "verdict": ("A verdict on a run", "", _VERDICT),
    "cause": ("A cause of waits, in a verdict", "docs/starving.md", _VERDICT),
    "receipt": (
        "An answer of stoker verify", "docs/receipts.md", "stoker verify PATH…   shows the epochs, batches and samples"
    ),
}  # fmt: skip
"""By kind of a word: what it is, the page that says more, and the command that shows its numbers."""


def word_page(
    *, code: str, kind: str, title: str, advice: str, checks: list[tuple[str, str]], width: int = WIDEST
) -> str:
    """What a code of a verdict or a receipt, or a cause, means. ``checks`` are codes and titles of pages that say more."""
    what, more, command = _KINDS[kind]
    sections = [
        (code, [f"{what}: {bare(title)}."]),
        ("Fix", [bare(advice)] if advice else []),
        ("Pages", [f"stoker explain {page}   ({bare(about)})" for page, about in checks]),
        ("More", [more] if more else []),
        ("Next", [command]),
    ]
    return "\n".join(_laid_out(sections, width, max(_MARGIN, len(code) + 2)))


def listed(rows: list[tuple[str, str, str]], width: int = WIDEST) -> list[str]:
    """Codes, names and titles as a table; a title that is too long goes on below itself, or below its name on a narrow screen."""
    names = max(len(name) for _, name, _ in rows)
    hang = 9 + names + 2 if width >= 9 + names + 2 + 30 else 9
    lines: list[str] = []
    for each_code, name, title in rows:
        first = f"{each_code:7}  {name:{names}}  " if hang > 9 else f"{each_code:7}  {name}"
        wrapped = textwrap.wrap(bare(title), width - hang, break_on_hyphens=False)
        lines += (
            [first + wrapped[0], *(" " * hang + each for each in wrapped[1:])]
            if hang > 9
            else [first, *(" " * hang + each for each in wrapped)]
        )
    return lines


def _prose(text: str, width: int) -> list[str]:
    lines: list[str] = []
    paragraph: list[str] = []
    code = False
    language = ""

    def flush() -> None:
        if paragraph:
            hang = "  " if paragraph[0].startswith("- ") else ""
            lines.extend(
                textwrap.wrap(
                    bare(" ".join(paragraph)), width, subsequent_indent=hang, break_on_hyphens=False
                )
            )
            paragraph.clear()

    for line in text.splitlines():
        if line.startswith("```"):
            flush()
            code, language = not code, line[3:].strip()
        elif code:
            lines += [f"  {each}" for each in fitted(line, width - 2, language)]
        elif not line.strip():
            flush()
            lines.append("")
        else:
            if line.startswith("- "):
                flush()
            paragraph.append(line.strip())
    flush()
    return lines
