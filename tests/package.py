"""``make package``: builds the wheel, installs it with its real dependencies where nothing else is, and uses it there.

A pytest run has stoker on its path and everything of the dev extra beside it; here there is neither. It takes
about a minute on two cores, most of it for torch, and 1 GB in a temporary folder that is removed. Ends with 1 at the first thing
that is not as it should be.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import venv
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import stoker

ROOT = Path(__file__).resolve().parents[1]
MOST_REPORT_BYTES = 3_000_000
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")
BUNDLED = (
    "py.typed",
    *(f"_tools/render/{name}" for name in ("page.js", "charts.js", "style.css", "vega.js")),
)

TRAINING = """
import sys, torch, stoker

class Squares(torch.utils.data.Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, index):
        return torch.tensor([index * index])

if __name__ == "__main__":
    for method in ("fork", "spawn"):
        with stoker.DataLoader(Squares(), 8, num_workers=2, multiprocessing_context=method, record=sys.argv[1]) as loader:
            assert torch.cat(list(loader)).flatten().tolist() == [n * n for n in range(64)]
    print(stoker.__file__)
"""


class Unsound(Exception):
    """Something is not as it should be."""


@contextmanager
def step(what: str) -> Iterator[None]:
    """Say what is done, and how long it took."""
    began_s = time.monotonic()
    yield
    print(f"{what}: {time.monotonic() - began_s:.1f} s", flush=True)


def require(true: object, what: str) -> None:
    """The opposite is an error."""
    if not true:
        raise Unsound(what)


def run(*words: str | Path, cwd: Path) -> str:
    """A command as a user has it: without this project's tree and without its variables. What it printed."""
    environ = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "STOKER", "VIRTUAL_ENV", "MYPY"))
    }
    done = subprocess.run([str(word) for word in words], cwd=cwd, env=environ, capture_output=True, text=True)
    require(done.returncode == 0, f"{' '.join(map(str, words))}\n{done.stdout}{done.stderr}")
    return done.stdout


def built(folder: Path) -> Path:
    """The wheel, made from the source distribution: what is missing there is missing here, and no old build gets in."""
    run(sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    (source,) = folder.glob("*.tar.gz")
    run(*PIP, "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, source, cwd=folder)
    (wheel,) = folder.glob("*.whl")
    return wheel


def check_contents(wheel: Path) -> None:
    """All modules, what the report needs, and nothing else."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = archive.read(f"stoker-{stoker.__version__}.dist-info/METADATA").decode()
    source = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src/stoker").rglob("*.py")}
    missing = (source | {f"stoker/{name}" for name in BUNDLED}) - names
    require(not missing, f"the wheel lacks {sorted(missing)}")
    strange = {name for name in names if not name.startswith(("stoker/", "stoker-"))}
    require(not strange, f"the wheel has {sorted(strange)}")
    left_over = {name for name in names if name.endswith(".py")} - source
    require(not left_over, f"the wheel has modules that are not in the source: {sorted(left_over)}")
    require("Requires-Dist: torch>=" in metadata, "the wheel does not ask for torch")


def check_commands(bin_: Path, folder: Path) -> None:
    """The command line and a loader, outside of any source tree."""
    said = run(bin_ / "stoker", "--version", cwd=folder)
    require(said == f"stoker, version {stoker.__version__}\n", said)
    facts = json.loads(run(bin_ / "stoker", "env", "--json", cwd=folder))
    require(facts["stoker"] == {"version": stoker.__version__, "installed": True}, facts["stoker"])
    require(all(facts["packages"].values()), f"packages are missing: {facts['packages']}")
    require("pillow" not in facts["packages"], "the environment is not empty")
    require("source tree" not in run(bin_ / "stoker", "env", cwd=folder), "stoker env")
    (folder / "train.py").write_text(TRAINING)
    where = run(bin_ / "python", "train.py", "runs", cwd=folder)
    require(str(folder) in where, f"stoker comes from {where}")
    run(bin_ / "stoker", "explain", "STK201", cwd=folder)
    require("Verdict" in run(bin_ / "stoker", "report", "runs", cwd=folder), "stoker report")
    run(bin_ / "stoker", "report", "runs", "-o", "report.html", cwd=folder)
    page = (folder / "report.html").read_text()
    require(len(page.encode()) < MOST_REPORT_BYTES, f"the report has {len(page.encode())} bytes")
    require("vega" in page, "the report has no charts in it")


def check_types(bin_: Path, folder: Path) -> None:
    """A user's program is checked against the installed package, in strict mode."""
    program = folder / "program.py"
    program.write_bytes((ROOT / "tests/typed/program.py").read_bytes())
    words = ("--strict", "--warn-unused-ignores", "--cache-dir", folder / "types", program)
    said = run(sys.executable, "-m", "mypy", "--python-executable", bin_ / "python", *words, cwd=folder)
    require("no issues found" in said, said)


def constraints() -> Path:
    """The pins that `make setup` used: with TORCH=2.6.0 they differ from those in the repository."""
    used = Path(sys.prefix) / "constraints.txt"
    return used if used.exists() else ROOT / "constraints.txt"


def main() -> int:
    """Everything in turn; the exit code."""
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="stoker-package-") as name:
        folder = Path(name).resolve()
        bin_ = folder / "environment/bin"
        try:
            with step("built"):
                wheel = built(folder)
            check_contents(wheel)
            with step("an empty environment"):
                venv.create(bin_.parent)  # pip itself comes from here: there is nothing at all in it
            with step("installed with its dependencies"):
                pip = (*PIP, "--python", bin_ / "python")
                # Byte code of all of torch would take longer than all else here; what is used gets its own.
                pinned = ("-c", constraints(), "--no-compile")
                run(*pip, "install", "--quiet", *pinned, wheel, cwd=folder)
                run(*pip, "check", cwd=folder)
            with step("commands, loaders, a report"):
                check_commands(bin_, folder)
            with step("types"):
                check_types(bin_, folder)
        except Unsound as error:
            print(f"the package is not sound: {error}", file=sys.stderr)
            return 1
    print(f"the wheel works in an empty environment ({time.monotonic() - began_s:.0f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
