"""The chart library as one script: Vega, Vega-Lite and Vega-Embed, as vl-convert bundles them.

A wheel brings it as ``vega.js``, which its build writes (setup.py loads this file, so it imports nothing of ours); a
checkout makes it when it is asked for, which takes a second or two.
"""

from __future__ import annotations

from functools import cache
from importlib import resources

NOTICE = """\
This script is made of other people's work, bundled by vl-convert-python:
  Vega {vega}, Vega-Lite {lite}, Vega-Embed {embed}, Vega-Themes {themes}, Vega-Tooltip, Vega-Interpreter:
    (c) 2013-2025 University of Washington Interactive Data Lab and contributors. BSD 3-clause, below.
  d3 (array, color, delaunay, dispatch, dsv, force, format, geo, geo-projection, hierarchy, interpolate, path, quadtree,
    scale, scale-chromatic, shape, time, time-format, timer), internmap: (c) 2010-2023 Mike Bostock. ISC, below.
  delaunator: (c) 2021 Mapbox. topojson-client: (c) 2012-2019 Michael Bostock. semver: (c) Isaac Z. Schlueter and
    contributors. All ISC, below.
  fast-json-patch: (c) 2013, 2014, 2020 Joachim Wester. json-stringify-pretty-compact: (c) 2014-2024 Simon Lydell.
    lodash.debounce: (c) OpenJS Foundation and contributors. All MIT, below.
  robust-predicates: Vladimir Agafonkin. Public domain (Unlicense).

BSD 3-clause: Redistribution and use in source and binary forms, with or without modification, are permitted provided that
the following conditions are met: 1. Redistributions of source code must retain the above copyright notice, this list of
conditions and the following disclaimer. 2. Redistributions in binary form must reproduce the above copyright notice, this
list of conditions and the following disclaimer in the documentation and/or other materials provided with the
distribution. 3. Neither the name of the copyright holder nor the names of its contributors may be used to endorse or
promote products derived from this software without specific prior written permission. THIS SOFTWARE IS PROVIDED BY THE
COPYRIGHT HOLDERS AND CONTRIBUTORS "AS IS" AND ANY EXPRESS OR IMPLIED WARRANTIES, INCLUDING, BUT NOT LIMITED TO, THE IMPLIED
WARRANTIES OF MERCHANTABILITY AND FITNESS FOR A PARTICULAR PURPOSE ARE DISCLAIMED. IN NO EVENT SHALL THE COPYRIGHT HOLDER OR
CONTRIBUTORS BE LIABLE FOR ANY DIRECT, INDIRECT, INCIDENTAL, SPECIAL, EXEMPLARY, OR CONSEQUENTIAL DAMAGES (INCLUDING, BUT NOT
LIMITED TO, PROCUREMENT OF SUBSTITUTE GOODS OR SERVICES; LOSS OF USE, DATA, OR PROFITS; OR BUSINESS INTERRUPTION) HOWEVER
CAUSED AND ON ANY THEORY OF LIABILITY, WHETHER IN CONTRACT, STRICT LIABILITY, OR TORT (INCLUDING NEGLIGENCE OR OTHERWISE)
ARISING IN ANY WAY OUT OF THE USE OF THIS SOFTWARE, EVEN IF ADVISED OF THE POSSIBILITY OF SUCH DAMAGE.

ISC: Permission to use, copy, modify, and/or distribute this software for any purpose with or without fee is hereby granted,
provided that the above copyright notice and this permission notice appear in all copies. THE SOFTWARE IS PROVIDED "AS IS" AND
THE AUTHOR DISCLAIMS ALL WARRANTIES WITH REGARD TO THIS SOFTWARE INCLUDING ALL IMPLIED WARRANTIES OF MERCHANTABILITY AND
FITNESS. IN NO EVENT SHALL THE AUTHOR BE LIABLE FOR ANY SPECIAL, DIRECT, INDIRECT, OR CONSEQUENTIAL DAMAGES OR ANY DAMAGES
WHATSOEVER RESULTING FROM LOSS OF USE, DATA OR PROFITS, WHETHER IN AN ACTION OF CONTRACT, NEGLIGENCE OR OTHER TORTIOUS ACTION,
ARISING OUT OF OR IN CONNECTION WITH THE USE OR PERFORMANCE OF THIS SOFTWARE.

MIT: Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated documentation
files (the "Software"), to deal in the Software without restriction, including without limitation the rights to use, copy,
modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to permit persons to whom the Software
is furnished to do so, subject to the following conditions: The above copyright notice and this permission notice shall be
included in all copies or substantial portions of the Software. THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND,
EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND
NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER
IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS
IN THE SOFTWARE."""
"""What the licences ask to go with every copy, and every report is one."""


@cache
def script() -> str:
    """To stand in a module script; ``window.vegaEmbed`` is there then. Raises ImportError, with what to do, where it is not."""
    packed = resources.files("stoker._tools.render").joinpath("vega.js")
    return packed.read_text(encoding="utf-8") if packed.is_file() else bundle()


def bundle() -> str:
    """Made anew, with its notice."""
    try:
        import vl_convert
    except ImportError:
        raise ImportError(
            "the chart library is missing from this installation: pip install vl-convert-python, or install stoker's wheel"
        ) from None
    notice = NOTICE.format(
        vega=vl_convert.get_vega_version(),
        lite=vl_convert.get_vegalite_versions()[-1],
        embed=vl_convert.get_vega_embed_version(),
        themes=vl_convert.get_vega_themes_version(),
    )
    return f"/*!\n{notice}\n*/\n{vl_convert.javascript_bundle('window.vegaEmbed = vegaEmbed;')}"
