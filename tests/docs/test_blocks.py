"""Every block of README and docs is of a kind that the tests know, and what is data can be parsed."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.docs.blocks import LANGUAGES, ROOT, Block, blocks_of, pages, parsed, prose_of

BLOCKS = [block for page in pages() for block in blocks_of(page)]
CODE = re.compile(
    r"(\$ |stoker (?=[a-z-]+ )|make [a-z]+$|pip install|import |from \S+ import |def |class |for .*:$|>>> )"
)


def test_every_page_is_looked_at() -> None:
    there = {str(each.relative_to(ROOT)) for folder in (ROOT, ROOT / "docs") for each in folder.glob("*.md")}
    assert there <= set(pages())
    assert {"docs/checks/STK101.md", "docs/adr/0001-record-decisions.md"} <= set(pages())


def test_every_block_has_a_language() -> None:
    assert [each.place for each in BLOCKS if each.language not in LANGUAGES] == []


def test_code_is_not_hidden_in_pictures() -> None:
    """A picture that begins like a program is one that somebody did not want to run."""
    assert [each.place for each in BLOCKS if each.language == "text" and CODE.match(each.source)] == []


@pytest.mark.parametrize(
    "block",
    [each for each in BLOCKS if each.language in ("yaml", "json", "toml")],
    ids=lambda each: each.place,
)
def test_data_can_be_read(block: Block) -> None:
    read = {"yaml": yaml.safe_load, "json": json.loads, "toml": tomllib.loads}[block.language]
    assert read(block.source)


def test_metrics_that_queries_name_are_exported() -> None:
    exported = (ROOT / "src/stoker/exports/prometheus.py").read_text()
    queries = [each for each in BLOCKS if each.language == "promql"]
    named = {name for each in queries for name in re.findall(r"stoker_\w+", each.source)}
    assert named
    found = {each: each.removeprefix("stoker_").removesuffix("_total") for each in named}
    assert [each for each, name in found.items() if f'"{name}"' not in exported] == []


def test_blocks_within_blocks_lists_and_comments() -> None:
    text = """# One
<!-- setup
a = 1
-->
- in a list:

  ```python title="x"
  a
  ```
## Two
````text
```python
not run
```
````
~~~{.sh}
stoker top
~~~
"""
    found = list(parsed("page.md", text))
    assert [(each.language, each.source, each.line, each.heading) for each in found] == [
        ("setup", "a = 1\n", 3, "One"),
        ("python", "a\n", 8, "One"),
        ("text", "```python\nnot run\n```\n", 12, "Two"),
        ("", "stoker top\n", 17, "Two"),
    ]


def test_prose_is_what_is_left(tmp_path: Path) -> None:
    prose = prose_of("docs/contributing.md")
    assert "checkpoint = " not in prose
    assert prose.splitlines()[0] == "# Working on stoker"
