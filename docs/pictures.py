"""The pictures of README and docs, drawn from a demo's record: ``make pictures``.

``python docs/pictures.py`` draws them from the figures beside them (docs/pictures/demo.json); ``--measure`` runs the acts first,
which takes two minutes and a machine that has nothing else to do; ``--record FILE`` takes them from what
``stoker demo --record FILE`` wrote. Each picture is made for light and for dark ground.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from stoker._tools.demo import curves, record, runner
from stoker._tools.demo.acts import killed, memory
from stoker._tools.render import theme
from stoker._tools.render.section import Chart, Section, SideBySide
from stoker.cli.command.progress import Lines

FOLDER = Path(__file__).parent / "pictures"
FIGURES = FOLDER / "demo.json"
ACTS = ("scaling", "memory", "killed")
THEMES = ("light", "dark")
_SIZE = (330, 150)
"""Of one view of the curves, in pixels: two stand side by side in a README's width."""
_WIDE = (700, 190)
_BUSY = 0.1
"""What others may have of the CPUs before it is said."""


def main() -> None:
    """Take new figures if asked to, and draw."""
    parser = argparse.ArgumentParser(prog="python docs/pictures.py", description=__doc__)
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--measure", action="store_true", help="run the acts now")
    source.add_argument("--record", type=Path, metavar="FILE", help="take what a demo wrote")
    options = parser.parse_args()
    if options.measure:
        acts = {name: each for name, each in runner.known().items() if name in ACTS}
        keep(runner.perform(acts, quick=False, tell=Lines().tell))
    elif options.record is not None:
        keep(json.loads(options.record.read_text(encoding="utf-8")))
    figures = record.checked(json.loads(FIGURES.read_text(encoding="utf-8")))
    for name, spec in specs(figures).items():
        for ground in THEMES:
            picture = FOLDER / f"{name}-{ground}.svg"
            picture.write_text(svg(spec, dark=ground == "dark"), encoding="utf-8")
            sys.stdout.write(f"{picture}: {picture.stat().st_size / 1024:.0f} KiB\n")


def keep(found: dict[str, Any]) -> None:
    """Of a demo's record, what the pictures need: it is a record itself."""
    found = record.checked(found)
    missing = [name for name in ACTS if not (found["acts"].get(name) or {}).get("result")]
    if missing:
        raise SystemExit(f"this record has no result of {', '.join(missing)}")
    kept = {**found, "acts": {name: found["acts"][name] for name in ACTS}}
    versions = found["machine"]["versions"]
    versions["system"] = versions["system"].split("-")[0]
    FOLDER.mkdir(exist_ok=True)
    FIGURES.write_text(json.dumps(_rounded(kept), indent=1) + "\n", encoding="utf-8")


def specs(figures: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """By name: Vega-Lite, with colours that ``svg`` settles."""
    results = {name: figures["acts"][name]["result"] for name in ACTS}
    return {
        "scaling": _curves(results["scaling"], caption(figures)),
        "memory": _single(memory.sections(results["memory"]), caption(figures)),
        "killed": _single(killed.sections(results["killed"]), caption(figures)),
    }


def caption(figures: dict[str, Any]) -> str:
    """On which machine, with what, and when."""
    machine = figures["machine"]
    versions = machine["versions"]
    day = time.strftime("%Y-%m-%d", time.gmtime(figures["began_unix_ns"] / 1e9))
    memory_gib = (machine["memory_bytes"] or 0) / (1 << 30)
    with_torch = f"torch {versions['torch']}, Python {versions['python']}, {versions['system']}"
    others = figures.get("others") or 0.0
    busy = f"; others had {others:.0%} of the CPUs" if others >= _BUSY else ""
    return f"stoker demo on {machine['usable']} CPUs, {memory_gib:.0f} GiB, {with_torch}; {day}{busy}"


def svg(spec: dict[str, Any], *, dark: bool) -> str:
    """Drawn, without a background: the page's shows through."""
    import vl_convert

    whole = {"config": theme.config(), "background": "transparent", **spec}
    return str(vl_convert.vegalite_to_svg(theme.settled(whole, dark=dark)))


def _curves(result: dict[str, Any], told: str) -> dict[str, Any]:
    """A view for every flavour, each with its own scale: what sleeps would flatten what computes."""
    views = [
        {**_drawn(chart), "title": _title(f"{label}: {chart.title}"), "width": _SIZE[0], "height": _SIZE[1]}
        for part in curves.sections(result)[0].parts
        if isinstance(part, SideBySide)
        for label, inner in part.columns
        for chart in inner
        if isinstance(chart, Chart)
    ]
    subtitle = [
        "Rows a second, over those of torch without workers; dashed: what an ideal machine would gain.",
        f"{told}.",
    ]
    return {
        "title": {"text": "What workers gain, by kind of work", "subtitle": subtitle, "offset": 14},
        "concat": views,
        "columns": 2,
        "spacing": 70,
        "bounds": "flush",
        "resolve": {"scale": {"color": "shared"}},
    }


def _title(text: str) -> dict[str, Any]:
    """Where the view begins, whatever its axis takes: so that they stand in columns."""
    return {"text": text, "anchor": "start", "frame": "group"}


def _single(sections: list[Section], told: str) -> dict[str, Any]:
    (chart,) = [part for section in sections for part in section.parts if isinstance(part, Chart)]
    title = {"text": chart.title, "subtitle": [chart.summary, f"{told}."], "offset": 8}
    return {**_drawn(chart), "title": title, "width": _WIDE[0], "height": _WIDE[1]}


def _drawn(chart: Chart) -> dict[str, Any]:
    """Without tooltips, which a picture cannot show and would carry as text."""
    spec: dict[str, Any] = _without(chart.spec, "tooltip")
    return spec


def _without(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return {key: _without(each, name) for key, each in value.items() if key != name}
    return [_without(each, name) for each in value] if isinstance(value, list) else value


def _rounded(value: Any) -> Any:
    """Five digits are enough to draw."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    return [_rounded(each) for each in value] if isinstance(value, list) else value


if __name__ == "__main__":
    main()
