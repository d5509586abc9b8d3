"""What README and docs refer to is there: files, headings, commands and their options, names of the package, codes."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import click
from markdown.extensions.toc import slugify

import stoker
from stoker._record.schema import CAUSES, STAGES
from stoker._tools.doctor.catalogue import catalogue
from stoker._tools.report.verdict.table import RECORDING
from stoker.cli.main import main
from tests.docs.blocks import ROOT, pages, prose_of, text_of

LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\[\]]*\])*\]\(([^()\s]+)\)")
SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
FOREIGN = {
    "--cpu-bind": "srun",
    "--cpus": "docker",
    "--cpus-per-task": "srun",
    "--ipc": "docker",
    "--memory": "docker",
    "--no-python": "torchrun",
    "--no_python": "accelerate",
    "--shm-size": "docker",
}
"""Options that the docs name alone, and whose they are."""

SCHEMES = {"only-light", "only-dark"}
"""What Material knows at the end of a picture's address."""


def headings(page: str) -> list[str]:
    return [each.strip() for each in re.findall(r"^#{1,6} (.+)$", prose_of(page), re.MULTILINE)]


def on_github(heading: str) -> str:
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


def on_site(heading: str) -> str:
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    return slugify(plain, "-")


def missing(page: str) -> Iterator[str]:
    """Links that lead nowhere on GitHub; those of docs, on the site."""
    for link in LINK.findall(re.sub(SPAN, "", prose_of(page))):
        target, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", link):
            continue
        path = ((ROOT / page).parent / target).resolve() if target else ROOT / page
        known = anchors(str(path.relative_to(ROOT))) if path.suffix == ".md" and path.exists() else SCHEMES
        if not path.exists() or (anchor and anchor not in known):
            yield f"{page}: {link}"


def anchors(page: str) -> set[str]:
    """As GitHub and the site both have them; names of the package, in the reference, are the site's."""
    found = headings(page)
    known = {on_github(each) for each in found}
    if page.startswith("docs/"):
        known &= {on_site(each) for each in found}
        known |= set(re.findall(r"^::: (\S+)$", text_of(page), re.MULTILINE))
    return known


def test_links_lead_somewhere() -> None:
    assert [each for page in pages() for each in missing(page)] == []


def commands() -> dict[str, click.Command]:
    context = click.Context(main)
    found = {name: main.get_command(context, name) for name in main.list_commands(context)}
    return {name: each for name, each in found.items() if each is not None}


def options(command: click.Command) -> set[str]:
    """Of a command, and those that all have."""
    own = {name for each in command.params for name in [*each.opts, *each.secondary_opts]}
    return own | {"--help", "-h"}


COMMANDS = commands()
ANY = set().union(*map(options, COMMANDS.values())) | {"--version"}


def spans(page: str) -> Iterator[str]:
    return (each.strip() for each in SPAN.findall(prose_of(page)))


def test_commands_have_the_options_that_they_are_named_with() -> None:
    wrong = []
    for span in chain(*map(spans, pages())):
        found = re.match(r"(?:python -m )?stoker ([a-z]+)\b(.*)", span)
        if found is None:
            continue
        name, words = found[1], found[2].split()
        if name not in COMMANDS:
            wrong.append(span)
            continue
        if name in ("advise", "profile", "run"):  # what follows the script is the script's
            script = next((at for at, word in enumerate(words) if not word.startswith("-")), len(words))
            words = words[:script]
        named = {re.split("[=,]", word)[0] for word in words if re.match(r"--?[a-z]", word)}
        wrong += [span for each in named if each not in options(COMMANDS[name])]
    assert wrong == []


def test_options_that_are_named_alone_are_of_some_command() -> None:
    folders = ("benchmarks", "examples", "tests/fuzz", "tests/soak")
    scripts = "".join(path.read_text() for folder in folders for path in (ROOT / folder).glob("*.py"))
    unknown = set()
    for page in pages():
        for span in spans(page):
            option = re.match(r"--[a-z][\w-]*", span)
            if option is None or option[0] in ANY | FOREIGN.keys():
                continue
            if f'"{option[0]}"' not in scripts:
                unknown.add(f"{page}: {span}")
    assert unknown == set()


def test_names_of_the_package_are_there() -> None:
    name = re.compile(r"(?<![\w./-])stoker(?:\.[A-Za-z_]\w*)+")
    named = {each for page in pages() for span in spans(page) for each in name.findall(span)}
    assert len(named) > 10
    assert [each for each in sorted(named) if not exists(each)] == []


def test_methods_of_the_loader_are_there() -> None:
    """``loader.trim()``, ``loader.stats()["memory"]``: what the docs call a loader is one."""
    dataset: Any = range(4)
    loader = stoker.DataLoader(dataset)
    named = {
        (page, name)
        for page in pages()
        for span in spans(page)
        for name in re.findall(r"(?<![\w.])(?:train_|val_)?loader\.(?!py\b)([a-z]\w*)", span)
    }
    assert len(named) > 10
    assert [each for each in sorted(named) if not hasattr(loader, each[1])] == []


def test_every_cause_and_stage_is_explained() -> None:
    """Words that a screen shows are in the glossary, and what to do about a cause is in the guide."""
    glossary, guide = prose_of("docs/glossary.md"), prose_of("docs/starving.md")
    causes = {each.replace("_", "-") for each in (*CAUSES, RECORDING)}
    (told,) = re.findall(r"^- \*\*cause\*\*: .*\n(?:  .*\n)*", glossary, re.MULTILINE)
    assert causes - set(SPAN.findall(told)) == set()
    (told,) = re.findall(r"^- \*\*stage\*\*: .*\n(?:  .*\n)*", glossary, re.MULTILINE)
    assert set(STAGES) - set(SPAN.findall(told)) == set()
    assert causes - set(re.findall(r"^\| `([a-z-]+)`", guide, re.MULTILINE)) == set()


def test_the_glossary_is_short_and_the_architecture_has_the_same_words() -> None:
    glossary = re.findall(r"^- \*\*([a-z ]+)\*\*:", (ROOT / "docs/glossary.md").read_text(), re.MULTILINE)
    words = (ROOT / "ARCHITECTURE.md").read_text().partition("\n## Words\n")[2].partition("\n## ")[0]
    listed = re.findall(r"\*([a-z ]+)\*(?: and \*([a-z ]+)\*)?:", " ".join(words.split()))
    assert sorted(word for pair in listed for word in pair if word) == sorted(glossary)
    assert len(glossary) == len(set(glossary)) <= 40


def test_the_readme_counts_the_findings_and_shows_the_commands() -> None:
    text = (ROOT / "README.md").read_text()
    (counted,) = re.findall(r"know \[(\d+) problems\]", text)
    assert int(counted) == len(catalogue())
    shown = set(re.findall(r"^stoker (\w+).* # ", text, re.MULTILINE))
    assert shown == set(main.list_commands(click.Context(main))) - {
        "completion",
        "demo",
    }  # `make demo` is at the top


def exists(name: str) -> bool:
    """A module, which need not be imported for that, or what is in one."""
    parts = name.split(".")
    end = 1
    while end < len(parts) and is_module(".".join(parts[: end + 1])):
        end += 1
    if end == len(parts):
        return True
    module = ".".join(parts[:end])
    if parts[1] == "integrations":  # it imports its framework, which need not be installed
        spec = importlib.util.find_spec(module)
        assert spec is not None
        assert spec.origin is not None
        body = ast.parse(Path(spec.origin).read_text()).body
        return any(getattr(each, "name", None) == parts[end] for each in body)
    found: object = importlib.import_module(module)
    for part in parts[end:]:
        if not hasattr(found, part):
            return False
        found = getattr(found, part)
    return True


def is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # a part of the way to it is no package
        return False


def test_codes_are_of_checks() -> None:
    known = {each.code for each in catalogue()}
    named = {(page, code) for page in pages() for code in re.findall(r"\bSTK\d{3}\b", text_of(page))}
    assert [(page, code) for page, code in sorted(named) if code not in known] == []


def test_what_is_missing_is_found() -> None:
    assert not exists("stoker.no_such")
    assert not exists("stoker.DataLoader.no_such")
    assert exists("stoker.errors.LoaderClosed")
    assert (
        on_github("What `stats()` tells: a, b")
        == on_site("What `stats()` tells: a, b")
        == "what-stats-tells-a-b"
    )
    assert LINK.findall("[a](b.md#c) [d [e]](f) ![g](h.svg)") == ["b.md#c", "f", "h.svg"]
