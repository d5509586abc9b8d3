"""Versions of frameworks that were not tested are named, once."""

from __future__ import annotations

import ast
import re
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from stoker.integrations import versions

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _unsaid():
    versions.name_untested.cache_clear()
    yield
    versions.name_untested.cache_clear()


@pytest.mark.parametrize(
    ("installed", "named"), [("2.6.6", False), ("2.6.9", False), ("2.7.0", True), ("3.6.6", True)]
)
def test_another_minor_version_is_named_once(monkeypatch, caplog, installed, named):
    monkeypatch.setattr(versions, "version", lambda package: installed)
    for _ in range(2):
        versions.name_untested("lightning")
    line = (
        f"lightning {installed} is installed; stoker.integrations.lightning is tested with 2.6.6 and may not work with it. "
        "If a loader misbehaves, install lightning==2.6.6"
    )
    assert [each.getMessage() for each in caplog.records] == [line] * named


def test_a_package_without_a_version_is_named(monkeypatch, caplog):
    def missing(package):
        raise PackageNotFoundError(package)

    monkeypatch.setattr(versions, "version", missing)
    versions.name_untested("ray")
    assert "ray of an unknown version is installed" in caplog.text


def test_every_integration_names_its_framework_when_it_is_imported():
    folder = ROOT / "src/stoker/integrations"
    called = {}
    for path in folder.glob("*.py"):
        for line in ast.parse(path.read_text()).body:
            match line:
                case ast.Expr(ast.Call(ast.Attribute(attr="name_untested"), [ast.Constant(value=package)])):
                    called[path.stem] = package
    assert called == {each: each for each in versions.TESTED}
    others = {path.stem for path in folder.glob("*.py")} - called.keys()
    assert others == {"__init__", "rebuilt", "versions"}


@pytest.mark.parametrize("package", versions.TESTED)
def test_the_documents_and_the_pins_have_the_tested_versions(package):
    tested = versions.TESTED[package]
    table = (ROOT / "docs/frameworks.md").read_text()
    assert re.findall(rf"tested with {package} ([\d.]+\d)", table) == [tested]
    assert f"\n{package}=={tested}\n" in (ROOT / "constraints.txt").read_text()
