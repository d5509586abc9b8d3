"""A tuning as Markdown: for a comment, and for frontends of notebooks that show no HTML."""

from __future__ import annotations

from stoker._tools.render.markdown import escaped
from stoker._tools.tune.forms import screen, words
from stoker._tools.tune.result import Tuning


def render(tuning: Tuning) -> str:
    """The verdict, why, a table of points and the edit, without a newline at its end."""
    gain = words.saving_text(tuning)
    blocks = [f"**{escaped(tuning.verdict)}**" + (f" {gain}." if gain else "")]
    if tuning.failure and tuning.failure not in tuning.verdict:
        blocks.append(escaped(tuning.failure))
    if tuning.why:
        blocks.append("\n".join(f"- {escaped(each)}" for each in tuning.why))
    points = words.shown_points(tuning)
    if points:
        rows = [words.HEADS, ("---", *["---:"] * (len(words.HEADS) - 1))]
        rows += [tuple(map(escaped, words.row(each, tuning))) for each in points]
        blocks.append("\n".join(f"| {' | '.join(row)} |" for row in rows))
    if edits := screen.typed(tuning):
        blocks.append("```python\n" + "\n".join(edits) + "\n```")
    if cache := words.cache_lines(tuning):
        blocks.append(f"{escaped(cache[0])}\n\n```python\n{cache[1]}\n```")
    if tuning.warnings:
        blocks.append("\n".join(f"- {escaped(each)}" for each in tuning.warnings))
    return "\n\n".join(blocks)
