"""What pyproject.toml cannot say: a wheel brings the chart library, which its build makes. All else is in pyproject.toml."""

import runpy
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

RENDER = Path("stoker", "_tools", "render")


class WithCharts(build_py):
    """Writes ``vega.js`` where the wheel is put together; a checkout that is installed as it stands makes it when it needs it."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            library = runpy.run_path(str(Path("src") / RENDER / "chart_library.py"))
            target = Path(self.build_lib) / RENDER / "vega.js"
            target.write_text(library["bundle"](), encoding="utf-8")

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        """With it, for those who remove what was installed."""
        return [*super().get_outputs(include_bytecode), str(Path(self.build_lib) / RENDER / "vega.js")]


setup(cmdclass={"build_py": WithCharts})
