"""Every block of README and docs is of a kind that the tests know, and what is data can be parsed."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from pathlib import Path

import pytest
import yaml
from markdown import markdown

from stoker import explain
from tests.docs.blocks import LANGUAGES, ROOT, Block, blocks_of, pages, parsed, prose_of

BLOCKS = [block for page in pages() for block in blocks_of(page)]
HEADING = re.compile(r"^([A-Z][a-z]+)(?: [a-z]+)? {2,}", re.MULTILINE)
"""Of a screen: Verdict, Why, Evidence."""

CODE = re.compile(
    r"^(\$ |stoker (?=[a-z-]+ )|make [a-z]+$|python3? |pip install"
    r"|import |from \S+ import |def |class |@\w|for .*:$|with .*:$|>>> )",
    re.MULTILINE,
)
STATEMENTS = (
    ast.Assign | ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef | ast.For | ast.With | ast.Call
)
EXTENSIONS = ["admonition", "attr_list", "def_list", "pymdownx.superfences", "tables"]
"""Of Markdown, as the site has them."""


def test_every_page_is_looked_at() -> None:
    there = {str(each.relative_to(ROOT)) for folder in (ROOT, ROOT / "docs") for each in folder.glob("*.md")}
    assert there <= set(pages())
    assert {"docs/checks/STK101.md", "docs/adr/0001-record-decisions.md"} <= set(pages())


def test_every_block_has_a_language() -> None:
    assert [each.place for each in BLOCKS if each.language not in LANGUAGES] == []


def test_code_is_not_hidden_in_pictures() -> None:
    """A picture with a line of a program in it, or one that is a program, is code that somebody did not want to run."""
    pictures = [each for each in BLOCKS if each.language == "text" and "```" not in each.source]
    assert [each.place for each in pictures if CODE.search(each.source) or is_program(each.source)] == []


def is_program(text: str) -> bool:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return any(isinstance(each, STATEMENTS) for each in ast.walk(tree))


@pytest.mark.parametrize(
    "text", ["# so\nloader = DataLoader(x)", "a\n$ stoker top", "f(x)", "x:\nwith a:\n  b"]
)
def test_hidden_code_is_seen(text: str) -> None:
    assert CODE.search(text) or is_program(text)


def test_every_block_has_a_fence() -> None:
    """Code that is only indented, or written in HTML, would be on the page and not among the blocks."""
    pre = [page for page in pages() if "<pre" in markdown(prose_of(page), extensions=EXTENSIONS)]
    assert pre == []
    assert "<pre" in markdown("so:\n\n    code\n", extensions=EXTENSIONS)


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


def test_pictures_of_screens_have_the_headings_of_screens() -> None:
    code = "".join(each.read_text() for each in (ROOT / "src/stoker").rglob("*.py"))
    screens = [each.source for each in BLOCKS if each.language in ("text", "console")]
    found = {word for each in screens if "Verdict  " in each for word in HEADING.findall(each)}
    assert {"Verdict", "Why", "Evidence", "Next"} <= found
    assert [word for word in sorted(found) if f'"{word}' not in code] == []


EXAMPLES = [
    each
    for each in BLOCKS
    if each.language == "text" and each.heading == "Example" and each.page.startswith("docs/checks/STK")
]


@pytest.mark.parametrize("block", EXAMPLES, ids=lambda each: each.place)
def test_a_message_that_is_an_example_is_recognised(block: Block) -> None:
    """As what it is about, or as something else that is to be seen in it."""
    found = explain(block.source)
    assert Path(block.page).stem in (found.code, *(each.code for each in found.also))


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


def test_prose_is_what_is_left() -> None:
    prose = prose_of("docs/contributing.md")
    assert "checkpoint = " not in prose
    assert prose.splitlines()[0] == "# Working on stoker"
