# SPDX-License-Identifier: MIT
"""Tell setuptools that the extension is built by tools/build_ext.py; all else is in pyproject.toml."""

import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

sys.path.insert(0, str(Path(__file__).resolve().parent / "tools"))
import build_ext as pipeline
import pyheaders


class BuildGoExtension(build_ext):
    """Builds mori._native._moricore with the Go tools."""

    def build_extension(self, ext: Extension) -> None:
        dest = Path(self.get_ext_fullpath(ext.name)).resolve().parent
        try:
            pipeline.build(dest)
        except (pipeline.BuildError, pyheaders.HeadersMissing) as err:
            raise SystemExit(f"error: {err}") from None


setup(
    ext_modules=[Extension("mori._native._moricore", sources=[])],
    cmdclass={"build_ext": BuildGoExtension},
)
