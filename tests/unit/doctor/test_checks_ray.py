"""The checks of a Ray cluster: each on facts that have the fault, and on facts that only look like it. No Ray is needed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from stoker._tools.doctor import examination
from stoker._tools.doctor.facts import Missing
from stoker._tools.doctor.facts.host.cluster import ClusterFacts, NodeFacts
from stoker._tools.doctor.facts.paths import HeldPath
from stoker._tools.doctor.instruments import ray_cluster
from stoker._tools.doctor.probes import paths
from stoker._tools.sandbox.subject import Subject
from tests.unit.doctor.given import found, only, samples, target

MIB = 1 << 20
VERSIONS = {"python": "3.11.7", "ray": "2.60.0", "torch": "2.13.0", "numpy": "2.1.0", "stoker": "1.0"}


def node(host: str = "a", **changes: Any) -> NodeFacts:
    ordinary: dict[str, Any] = {
        "host": host,
        "cpus": 4.0,
        "free_cpus": 4.0,
        "store_bytes": 1024 * MIB,
        "versions": VERSIONS,
    }
    return NodeFacts(**{**ordinary, **changes})


def cluster(*nodes: NodeFacts, **changes: Any) -> ClusterFacts:
    return ClusterFacts("auto", nodes or (node(),), VERSIONS, **changes)


def test_a_healthy_cluster() -> None:
    facts = {"cluster": cluster(node("a"), node("b")), "target": target(num_workers=8), "samples": samples()}
    for code in ("STK321", "STK322", "STK323", "STK325", "STK326"):
        assert found(code, **facts) == []


def test_321_no_answer() -> None:
    nobody = ClusterFacts("10.0.0.1:6379", (), VERSIONS, failure="ConnectionError: refused")
    finding = only("STK321", cluster=nobody)
    assert finding.severity == "high"
    assert "10.0.0.1:6379" in finding.evidence
    assert "refused" in finding.evidence
    silent = cluster(node("a"), node("b", versions={}, failure="GetTimeoutError: "))
    assert only("STK321", cluster=silent).severity == "moderate"


def test_322_versions() -> None:
    other = cluster(node("a"), node("b", versions={**VERSIONS, "python": "3.10.2"}))
    finding = only("STK322", cluster=other)
    assert finding.severity == "high"
    assert "1 of 2 nodes (b)" in finding.evidence
    assert "python 3.10.2" in finding.evidence
    missing = only("STK322", cluster=cluster(node(versions={**VERSIONS, "stoker": ""})))
    assert "stoker missing" in missing.evidence
    assert missing.severity == "high"
    minor = only("STK322", cluster=cluster(node(versions={**VERSIONS, "torch": "2.12.0"})))
    assert minor.severity == "moderate"
    assert found("STK322", cluster=cluster(node(versions={**VERSIONS, "numpy": "2.1.3"}))) == []


def test_323_free_cpus() -> None:
    busy = cluster(node("a", free_cpus=1.0), node("b", free_cpus=2.0))
    finding = only("STK323", cluster=busy, target=target(num_workers=8))
    assert finding.severity == "moderate"
    assert finding.numbers == {"free": 3, "cpus": 8.0, "wanted": 8}
    assert found("STK323", cluster=busy, target=target(num_workers=3)) == []
    assert found("STK323", cluster=busy) == []
    assert only("STK323", cluster=cluster(node(cpus=0.0, free_cpus=0.0))).severity == "high"
    assert found("STK323", cluster=ClusterFacts("auto", (), {}, failure="gone")) == []


def test_325_object_store() -> None:
    small = cluster(node(store_bytes=100 * MIB))
    finding = only("STK325", cluster=small, samples=samples(batch_bytes=37 * MIB))
    assert finding.severity == "moderate"
    assert finding.numbers["needed_bytes"] == 8 * 37 * MIB
    assert only("STK325", cluster=small, samples=samples(batch_bytes=120 * MIB)).severity == "high"
    assert found("STK325", cluster=small, samples=samples(batch_bytes=1 * MIB)) == []
    assert only("STK325", cluster=cluster(node(store_bytes=32 * MIB))).severity == "moderate"
    assert found("STK325", cluster=cluster(node(cpus=0.0, store_bytes=MIB))) == []  # makes no batches


def test_326_paths() -> None:
    held = (HeldPath("dataset.root", "/data/pictures", 40), HeldPath("dataset.names", "/data/names.txt"))
    facts = cluster(node("a"), node("b", absent=("/data/pictures",)), paths=held)
    finding = only("STK326", cluster=facts)
    assert "dataset.root names /data/pictures and 39 more" in finding.evidence
    assert "1 node of 2 (b)" in finding.evidence
    assert found("STK326", cluster=cluster(node("a"), paths=held)) == []
    idle = cluster(node("a"), node("head", cpus=0.0, absent=("/data/pictures",)), paths=held)
    assert found("STK326", cluster=idle) == []


class Holder:
    """A dataset with paths, and texts that are none."""

    def __init__(self, folder: Path) -> None:
        self.root = folder
        self.files = [str(folder / name) for name in ("a", "b", "gone")]
        self.options = {"name": "a", "text": "either/or", "deep": {"index": str(folder / "a")}}
        self.me = self


def test_paths_of_a_dataset(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).touch()
    fact = paths.probe(Subject(Holder(tmp_path)))
    assert fact.complete
    assert fact.paths == (
        HeldPath("dataset.root", str(tmp_path)),
        HeldPath("dataset.files[0]", str(tmp_path / "a"), 2),
        HeldPath("dataset.options['deep']['index']", str(tmp_path / "a")),
    )


def test_without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checks are skipped with the reason: nobody asked, or Ray is not there."""
    diagnosis = examination.doctor(select=["STK32"])
    assert {each.code for each in diagnosis.skipped} == {"STK321", "STK322", "STK323", "STK325", "STK326"}
    assert "--ray" in diagnosis.skipped[0].reason
    monkeypatch.setattr(examination, "_cluster", lambda *_: Missing("Ray is not installed here"))
    assert "not installed" in examination.doctor(select=["STK321"], ray="auto").skipped[0].reason


def test_a_process_that_answers_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever becomes of the process that asks, the answer is a fact."""
    liar = tmp_path / "python"
    liar.write_text(f"#!{sys.executable}\nimport sys\nsys.exit('boom')\n")
    liar.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(liar))
    fact = ray_cluster.ask_cluster("auto", (), 20.0)
    assert isinstance(fact, ClusterFacts)
    assert "boom" in fact.failure


def test_nothing_is_imported_from_the_current_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In /tmp, say, another user may have put a "ray.py"."""
    liar = tmp_path / "python"
    liar.write_text(f"#!{sys.executable}\nimport sys\nsys.exit(' '.join(sys.argv[1:]))\n")
    liar.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(liar))
    fact = ray_cluster.ask_cluster("auto", (), 20.0)
    assert isinstance(fact, ClusterFacts)
    assert "-P -m stoker._tools.doctor.instruments.ray_questions" in fact.failure
