"""The chart library as one script: Vega, Vega-Lite and Vega-Embed, as vl-convert bundles them.

A wheel brings it as ``vega.js``, which its build writes (setup.py); a checkout makes it when it is asked for.
"""

from __future__ import annotations

from functools import cache
from importlib import resources


@cache
def script() -> str:
    """To stand in a module script; ``window.vegaEmbed`` is there then. Raises ImportError, with what to do, when it is not to be had."""
    packed = resources.files("stoker.report.page").joinpath("vega.js")
    if packed.is_file():
        return packed.read_text(encoding="utf-8")
    try:
        import vl_convert
    except ImportError:
        raise ImportError(
            "the chart library is missing from this installation: pip install vl-convert-python, or install stoker's wheel"
        ) from None
    return str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))
