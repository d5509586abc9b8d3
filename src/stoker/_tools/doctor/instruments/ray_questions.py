"""The process that talks to Ray for ``ray_cluster``: a question as JSON on stdin, one line with the answer on stdout.

It runs one small task on every node that has a CPU free, and asks the control service about the others.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from stoker._tools.doctor.instruments.ray_cluster import ANSWER


def main() -> None:
    """Answer one question. Never raises for what the cluster does."""
    question = json.load(sys.stdin)
    try:
        import ray
    except ImportError:
        _tell({"absent": True})
        return
    answer: dict[str, Any] = {"nodes": [], "versions": _look([])[0], "failure": ""}
    try:
        ray.init(address=question["address"], log_to_driver=False, logging_level="ERROR")
    except (Exception, SystemExit) as error:
        answer["failure"] = (
            f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else 'no reason'}"
        )
        _tell(answer)
        return
    try:
        answer["nodes"] = _nodes(ray, question["paths"], question["limit_s"])
    except Exception as error:
        answer["failure"] = f"{type(error).__name__}: {error}"
    _tell(answer)
    ray.shutdown()


def _tell(answer: dict[str, Any]) -> None:
    sys.stdout.write(ANSWER + json.dumps(answer) + "\n")
    sys.stdout.flush()


def _look(paths: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Runs on a node: the versions there, and the paths that do not exist there. Self-contained: it travels by value."""
    import os
    import platform
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": platform.python_version()}
    for name in ("ray", "torch", "numpy", "stoker"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = ""
    return found, [path for path in paths if not os.path.exists(path)]


def _nodes(ray: Any, paths: list[str], limit_s: float) -> list[dict[str, Any]]:
    import cloudpickle
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    cloudpickle.register_pickle_by_value(sys.modules[_look.__module__])
    look = ray.remote(num_cpus=0, max_retries=0)(_look)
    free = _free_cpus(ray)
    alive = [each for each in ray.nodes() if each["Alive"]]
    asked = {}
    for each in alive:
        here = NodeAffinitySchedulingStrategy(each["NodeID"], soft=False)
        asked[each["NodeID"]] = look.options(scheduling_strategy=here).remote(paths)
    ray.wait(list(asked.values()), num_returns=len(asked), timeout=limit_s)
    found = []
    for each in alive:
        versions, absent, failure = {}, [], ""
        try:
            versions, absent = ray.get(asked[each["NodeID"]], timeout=0.1)
        except Exception as error:
            failure = (
                f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
            )
        resources = each["Resources"]
        found.append(
            {
                "host": each.get("NodeManagerHostname") or each["NodeManagerAddress"],
                "cpus": resources.get("CPU", 0.0),
                "free_cpus": free.get(each["NodeID"], 0.0),
                "store_bytes": int(resources.get("object_store_memory", 0)),
                "versions": versions,
                "absent": absent,
                "failure": failure,
                "head": "node:__internal_head__" in resources,
            }
        )
    return found


def _free_cpus(ray: Any) -> dict[str, float]:
    """By node. Where this version of Ray does not say, all of a node's CPUs count as free."""
    try:
        from ray._private.state import available_resources_per_node

        return {name: float(each.get("CPU", 0.0)) for name, each in available_resources_per_node().items()}
    except Exception:
        return {each["NodeID"]: float(each["Resources"].get("CPU", 0.0)) for each in ray.nodes()}


if __name__ == "__main__":
    main()
