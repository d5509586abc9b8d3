"""Compiles the fake accelerator's C++ once per torch version, compiler and source, into a folder of this checkout."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
from pathlib import Path

import torch

_HERE = Path(__file__).parent
_CACHE = _HERE.parents[1] / ".pytest_cache" / "fake_device"
_SOURCES = ("backend.cpp", "engine.cpp", "memory.cpp", "controls.cpp")
_HEADERS = ("engine.h", "state.h")
_FLAGS = ("-std=c++20", "-O2", "-fPIC", "-Wall")


class CompilerMissing(RuntimeError):
    """There is no g++ here."""


def library() -> Path:
    """The compiled library. The first caller compiles it, about ten seconds on two cores; all others wait for that one."""
    key = hashlib.sha256("\n".join((torch.__version__, *_FLAGS)).encode())
    for name in (*_SOURCES, *_HEADERS):
        key.update((_HERE / name).read_bytes())
    target = _CACHE / f"{key.hexdigest()[:16]}.so"
    if target.exists():
        return target
    _CACHE.mkdir(parents=True, exist_ok=True)
    with open(_CACHE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # released when closed, also by a process that dies
        if not target.exists():
            _compile(target)
    return target


def _compile(target: Path) -> None:
    compiler = shutil.which("g++")
    if compiler is None:
        raise CompilerMissing("the fake accelerator needs g++: run `.ci/compiler`, or apt-get install g++")
    torch_folder = Path(torch.__file__).parent
    includes = [torch_folder / "include", torch_folder / "include/torch/csrc/api/include"]
    system = [flag for folder in includes for flag in ("-isystem", str(folder))]
    folder = target.with_suffix(".parts")
    folder.mkdir(exist_ok=True)
    objects = {name: folder / f"{name}.o" for name in _SOURCES}
    # The first source, with torch's headers, takes as long as all others together.
    compilers = [
        subprocess.Popen(
            [compiler, *_FLAGS, *system, "-c", str(_HERE / name), "-o", str(into)],
            stderr=subprocess.PIPE,
            text=True,
        )
        for name, into in objects.items()
    ]
    messages = [process.communicate()[1] for process in compilers]
    if any(process.returncode for process in compilers):
        raise RuntimeError("the fake accelerator does not compile:\n" + "\n".join(messages))
    libraries = torch_folder / "lib"
    link = [
        compiler,
        "-shared",
        *map(str, objects.values()),
        "-L",
        str(libraries),
        "-lc10",
        "-ltorch_cpu",
        "-pthread",
    ]
    subprocess.run([*link, f"-Wl,-rpath,{libraries}", "-o", str(folder / "whole.so")], check=True)
    (folder / "whole.so").replace(target)
    shutil.rmtree(folder)
