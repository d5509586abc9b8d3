"""A Ray cluster as its nodes describe themselves, asked by ``stoker doctor --ray``."""

from __future__ import annotations

from dataclasses import dataclass

from stoker._tools.doctor.facts.paths import HeldPath


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """One node: what it has, what is installed there, and which of the dataset's paths it lacks."""

    host: str
    cpus: float
    free_cpus: float
    store_bytes: int
    """What the node's object store holds at most."""
    versions: dict[str, str]
    """By name ("python", "ray", "torch", "stoker"); "" for a package that is not installed there. Empty: it did not answer."""
    absent: tuple[str, ...] = ()
    """Paths that exist here and not there."""
    failure: str = ""
    """Why the node did not answer."""
    head: bool = False


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """The nodes, this process's own versions, and the paths that were asked for."""

    address: str
    nodes: tuple[NodeFacts, ...]
    versions: dict[str, str]
    paths: tuple[HeldPath, ...] = ()
    failure: str = ""
    """Why there is no cluster to ask; then there are no nodes."""

    @property
    def free_cpus(self) -> float:
        """The free CPUs of all nodes."""
        return sum(each.free_cpus for each in self.nodes)

    @property
    def cpus(self) -> float:
        """All CPUs that Ray may give away."""
        return sum(each.cpus for each in self.nodes)
