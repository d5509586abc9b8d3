"""The files around the code agree with each other: the CI workflow, ``.ci/run``, pyproject's bounds and the hooks."""

from __future__ import annotations

import itertools
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[2]


def job() -> dict[str, Any]:
    """The workflow's only job."""
    (found,) = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"].values()
    assert isinstance(found, dict)
    return found


def pairs() -> list[tuple[str, str]]:
    """Every (python, torch) that CI runs."""
    matrix = job()["strategy"]["matrix"]
    left_out = {(each["python"], each["torch"]) for each in matrix["exclude"]}
    every = list(itertools.product(matrix["python"], matrix["torch"]))
    assert left_out <= set(every), "an exclusion that excludes nothing"
    return [each for each in every if each not in left_out]


def project() -> dict[str, Any]:
    """The table of pyproject.toml."""
    found = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert isinstance(found, dict)
    return found


def torch_bound() -> SpecifierSet:
    """Versions of torch that the package accepts."""
    (found,) = (each for each in map(Requirement, project()["dependencies"]) if each.name == "torch")
    return found.specifier


def pinned_torch() -> str:
    """The version in constraints.txt."""
    (found,) = re.findall(r"^torch==(.+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert isinstance(found, str)
    return found


def test_the_workflow_runs_the_commands_of_ci_run():
    steps = re.findall(r"^make .+$", (ROOT / ".ci/run").read_text(), re.MULTILINE)
    assert [step["run"] for step in job()["steps"] if "run" in step] == steps
    assert steps


def test_the_workflow_tests_in_a_folder_called_stoker():
    checkout = next(step for step in job()["steps"] if step.get("uses", "").startswith("actions/checkout@"))
    assert checkout["with"]["path"] == job()["defaults"]["run"]["working-directory"] == "stoker"


@pytest.mark.parametrize(("python", "torch"), pairs())
def test_a_pair_lies_within_the_bounds(python: str, torch: str):
    assert SpecifierSet(project()["requires-python"]).contains(python)
    assert torch_bound().contains(torch)


def test_the_matrix_has_both_ends_of_what_we_claim():
    torches = {torch for _, torch in pairs()}
    assert any(f">={oldest.removesuffix('.0')}" == str(torch_bound()) for oldest in torches)
    assert pinned_torch() in torches
    assert {python for python, _ in pairs()} == {"3.11", "3.12", "3.13", "3.14"}


def test_the_makefile_installs_the_pinned_torch_unless_told_otherwise():
    text = (ROOT / "Makefile").read_text()
    assert re.search(rf"^TORCH +\?= {re.escape(pinned_torch())}$", text, re.MULTILINE)
    assert f"$(filter {pinned_torch()},$(TORCH))" in text
    assert job()["env"]["TORCH"] == "${{ matrix.torch }}"


def test_contributing_lists_the_matrix():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    for python, torch in pairs():
        assert f"| Python {python} |" in text
        assert f"torch {torch.removesuffix('.0')} " in text


def test_the_hooks_are_the_tools_of_make_check():
    (local,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert local["repo"] == "local"
    rule = re.search(r"^check:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert rule
    wanted = [line.split("/", 1)[1].split("$(CODE)")[0].strip() for line in rule[1].splitlines()]
    for command, hook in zip(wanted, local["hooks"], strict=True):
        assert f".venv/bin/{command.removesuffix(' --check')}" in hook["entry"]
