# SPDX-License-Identifier: MIT
"""Tell setuptools how the extension is built, and that headers come along; all else is in pyproject.toml."""

import shutil
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

sys.path.insert(0, str(Path(__file__).resolve().parent / "tools"))
import build_ext as pipeline
import pyheaders

HEADERS = Path(__file__).resolve().parent / "native" / "include"


class BuildGoExtension(build_ext):
    """Builds mori._native._moricore with the Go tools."""

    def build_extension(self, ext: Extension) -> None:
        dest = Path(self.get_ext_fullpath(ext.name)).resolve().parent
        try:
            pipeline.build(dest)
        except (pipeline.BuildError, pyheaders.HeadersMissing) as err:
            raise SystemExit(f"error: {err}") from None


class BuildWithHeaders(build_py):
    """Brings the headers for kernels to where mori.get_include looks for them."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:  # which finds them in the source tree
            to = Path(self.build_lib) / "mori" / "include"
            shutil.copytree(HEADERS, to, dirs_exist_ok=True)


setup(
    ext_modules=[Extension("mori._native._moricore", sources=[])],
    cmdclass={"build_ext": BuildGoExtension, "build_py": BuildWithHeaders},
)
