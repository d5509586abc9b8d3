"""What MkDocs is told beside mkdocs.yml: pages of the repository's root, and lists that grow by themselves.

ARCHITECTURE.md, CHANGELOG.md and the examples stay where everybody looks for them; the site has them as pages, and links between
them and ``docs/`` lead to the right place on both sides.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

_ROOT_PAGES = {
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "README.md": "index.md",
    "examples/README.md": "examples.md",
}
"""By their names in the repository: what they are called in the site. The README's place is taken by the site's own front page."""

_BEHIND = ("adr/", "architecture.md", "changelog.md", "examples.md")
"""Pages that have all words and are seldom what somebody searches for: guides and findings come first."""

_TO_DOCS = re.compile(r"(\]\()docs/")
_TO_ROOT = re.compile(rf"(\]\((?:\.\./)+)({'|'.join(map(re.escape, _ROOT_PAGES))})")
_FOR_TESTS = re.compile(r"^<!-- setup\n.*?^-->\n", re.MULTILINE | re.DOTALL)
_TO_SCRIPT = re.compile(r"\]\((\w+)\.py\)")
_GROUP = re.compile(r"^## (.+?)$|\]\((STK\d+\.md)\)", re.MULTILINE)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Every check and every decision has its place in the menu without being named in mkdocs.yml."""
    docs = Path(config.docs_dir)
    config.nav = [_grown(entry, docs) for entry in config.nav or []]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The repository's own pages, as pages of the site."""
    root = Path(config.docs_dir).parent
    for name, place in _ROOT_PAGES.items():
        if files.get_file_from_path(place) is None:
            text = _TO_DOCS.sub(r"\1", (root / name).read_text(encoding="utf-8"))
            files.append(File.generated(config, place, content=_with_scripts(text, (root / name).parent)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """``../ARCHITECTURE.md``, which is right in the repository, becomes ``architecture.md``; what is for the tests alone goes."""
    if page.file.src_uri.startswith(_BEHIND):
        page.meta.setdefault("search", {"boost": 0.01})
    markdown = _FOR_TESTS.sub("", markdown)
    up = "../" * page.file.src_uri.count("/")
    return _TO_ROOT.sub(lambda found: f"]({up}{_ROOT_PAGES[found[2]]}", markdown)


def _with_scripts(text: str, folder: Path) -> str:
    """Scripts that a page links to stand at its end, for the site has no files to link to."""
    lines = [_TO_SCRIPT.sub(r"](#\1)", text)]
    for name in dict.fromkeys(_TO_SCRIPT.findall(text)):
        source = (folder / f"{name}.py").read_text(encoding="utf-8")
        lines += [f"## {name}.py {{ #{name} }}", "", "```python", source.rstrip(), "```", ""]
    return "\n".join(lines)


def _grown(entry: Any, docs: Path) -> Any:
    if not isinstance(entry, dict):
        return entry
    ((title, value),) = entry.items()
    if value == "checks/README.md":
        return {title: [value, *_checks(docs / "checks")]}
    if value == "adr/README.md":
        return {title: [value, *(f"adr/{each.name}" for each in sorted((docs / "adr").glob("0*.md")))]}
    return {title: [_grown(each, docs) for each in value]} if isinstance(value, list) else entry


def _checks(folder: Path) -> list[dict[str, list[str]]]:
    """Pages of checks by group, as their index has them."""
    groups: dict[str, list[str]] = {}
    name = ""
    for heading, page in _GROUP.findall((folder / "README.md").read_text(encoding="utf-8")):
        if heading:
            name = heading
        else:
            groups.setdefault(name, []).append(f"checks/{page}")
    return [{name: pages} for name, pages in groups.items()]
