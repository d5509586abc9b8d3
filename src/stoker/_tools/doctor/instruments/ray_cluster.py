"""Asks a Ray cluster about its nodes, from a process of its own: this one stays free of Ray, and a hang ends with the limit."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

from stoker._tools.doctor.facts import Missing
from stoker._tools.doctor.facts.host.cluster import ClusterFacts, NodeFacts
from stoker._tools.doctor.facts.paths import HeldPath
from stoker._tools.sandbox.client import environment

ANSWER = "stoker-cluster "
"""How the line with the answer begins: Ray may write lines of its own."""


def ask_cluster(address: str, paths: Sequence[HeldPath], limit_s: float) -> ClusterFacts | Missing:
    """What the nodes of the cluster at ``address`` say. ``Missing`` if Ray is not installed here.

    Called by the doctor, on its thread. Starts no cluster. ``limit_s`` bounds it.
    """
    question = json.dumps(
        {"address": address, "paths": [each.path for each in paths], "limit_s": max(2.0, limit_s - 5.0)}
    )
    try:
        ran = subprocess.run(
            [sys.executable, "-P", "-m", "stoker._tools.doctor.instruments.ray_questions"],
            input=question,
            env={**environment(), "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "PYTHONWARNINGS": "ignore"},
            capture_output=True,
            text=True,
            timeout=max(3.0, limit_s),
        )
    except subprocess.TimeoutExpired:
        failure = f"no answer from the cluster at {address!r} within {limit_s:.0f} s"
        return ClusterFacts(address, (), {}, tuple(paths), failure)
    told = next((line for line in ran.stdout.splitlines() if line.startswith(ANSWER)), None)
    if told is None:
        last = (ran.stderr.strip().splitlines() or ["no reason"])[-1]
        return ClusterFacts(address, (), {}, tuple(paths), f"Ray ended with code {ran.returncode}: {last}")
    answer = json.loads(told.removeprefix(ANSWER))
    if answer.get("absent"):
        return Missing("Ray is not installed here: pip install 'stoker[ray]'")
    nodes = tuple(NodeFacts(**{**each, "absent": tuple(each["absent"])}) for each in answer["nodes"])
    return ClusterFacts(address, nodes, answer["versions"], tuple(paths), answer["failure"])
