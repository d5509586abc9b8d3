"""``stoker env``: prints what a bug report should say about this machine."""

from __future__ import annotations

import json
import sys
import textwrap
from typing import Any

import click

from stoker.cli.command.shared_options import json_option

_MARGIN, _WIDTH = 14, 80
_TIE = "\0"
"""A space at which no line is broken."""


@click.command()
@json_option
@click.option(
    "--torch", "ask_torch", is_flag=True, help="Import torch and list its devices. This takes seconds."
)
def command(as_json: bool, ask_torch: bool) -> None:
    """Print what a bug report needs: versions, CPUs, memory, limits, and variables that change what a loader does.

    The output has nothing personal: the home folder and the user's name are printed as ~, and no other variables are read. torch
    is imported, and devices are touched, only with --torch.
    """
    from stoker.cli.command.env_facts import gathered, impersonal, torch_facts

    facts = gathered()
    if ask_torch:
        try:
            facts["torch"] = torch_facts()
        except Exception as error:  # a broken installation is what such a report is about
            facts["torch"] = {"error": impersonal(f"{type(error).__name__}: {error}")}
    if as_json:
        click.echo(json.dumps(facts, indent=2, ensure_ascii=False))
        return
    from stoker._tools.render.terminal import encodable, width_of

    for line in lines(facts, min(_WIDTH, width_of(sys.stdout))):
        click.echo(encodable(line, sys.stdout))


def lines(facts: dict[str, Any], width: int = _WIDTH) -> list[str]:
    """The facts as people read them. Pure."""
    python, system, machine = facts["python"], facts["system"], facts["machine"]
    packages = dict(facts["packages"])
    found = {
        "stoker": [facts["stoker"]["version"] + ("" if facts["stoker"]["installed"] else ", from a source tree")],
        "torch": [packages.pop("torch") or "not installed", *_torch(facts.get("torch"))],
        "Python": [
            f"{python['version']} {python['implementation']}, {'with' if python['gil'] else 'without'} the GIL"
            + (", virtual environment" if python["virtual_environment"] else "")
        ],
        "system": [
            ", ".join(filter(None, (f"{system['name']} {system['release']}", system["machine"], system["libc"]))),
            *([f"in a container ({system['container']})"] if system["container"] else []),
        ],
        "CPUs": [
            f"{machine['usable']} usable: {machine['usable_reason']}",
            f"machine {machine['cpus']}, affinity {machine['affinity']}, cgroup quota {_shown(machine['quota'])}",
            *([f"local ranks {machine['local_ranks']}"] if machine["local_ranks"] > 1 else []),
        ],
        "memory": [
            f"{_size(machine['available_bytes'])} available of {_size(machine['memory_bytes'])}",
            f"cgroup limit {_size(machine['cgroup_limit_bytes'], 'none')}",
        ],
        "/dev/shm": [f"{_size(machine['shm_free_bytes'])} free of {_size(machine['shm_bytes'], 'none')}"],
        "descriptors": [f"{_shown(machine['descriptors'])}, may be raised to {_shown(machine['hard_descriptors'], 'any')}"],
        "start method": [f"{python['start_method']} by default"],
        "accelerators": facts["accelerators"] or ["none seen in /dev"],
        "files": [
            f"{name}: {each['type'] or 'unknown filesystem'}, {_size(each['free_bytes'])} free"
            for name, each in facts["filesystems"].items()
        ],
        "packages": [", ".join(f"{name}{_TIE}{version or '(missing)'}" for name, version in packages.items())],
        "variables": [f"{name}={value}" for name, value in facts["environment"].items()] or ["none that matter"],
    }  # fmt: skip
    return [line for label, each in found.items() for line in _laid_out(label, each, width)]


def _torch(told: dict[str, Any] | None) -> list[str]:
    """What torch said of itself, when it was asked."""
    if told is None:
        return []
    if "error" in told:
        return [f"cannot be imported: {told['error']}"]
    built = "CUDA " + told["cuda"] if told["cuda"] else "ROCm " + told["hip"] if told["hip"] else "CPU only"
    devices = ", ".join(told["devices"]) or "no device" + (
        f" ({told['devices_error']})" if "devices_error" in told else ""
    )
    return [f"{built}; {devices}", f"{told['threads']} threads, shares tensors by {told['sharing_strategy']}"]


def _laid_out(label: str, told: list[str], width: int) -> list[str]:
    """Lay out a value behind its label and break it at the width; what continues a line is set in."""
    broken = []
    for each in told:
        broken += textwrap.wrap(each, width - _MARGIN, subsequent_indent="  ", break_on_hyphens=False)
    return [
        f"{label if number == 0 else '':{_MARGIN}}{line.replace(_TIE, ' ')}"
        for number, line in enumerate(broken)
    ]


def _shown(value: Any, absent: str = "none") -> str:
    return absent if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _size(count_bytes: int | None, absent: str = "unknown") -> str:
    if count_bytes is None:
        return absent
    size, unit = float(count_bytes), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB"):
        if size < 1024 or unit == "PiB":
            break
        size /= 1024
    return f"{size:.3g} {unit}" if size < 1000 else f"{size:.0f} {unit}"
