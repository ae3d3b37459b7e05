# SPDX-License-Identifier: MIT
"""Libraries with emulated devices: the common part of gpus.py and nics.py."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


class Library:
    """A library that is compiled by a script when a session of tests begins, and loaded into this process.

    Attributes:
        folder: where it is, once it is loaded; processes that are started with it in LD_LIBRARY_PATH find it.
        loaded: the library; None where tests run on real devices, or it cannot be compiled.
        why_not: why that is so.
    """

    def __init__(self, what: str, real: str, script: str, tools: tuple[str, ...], steering: tuple[str, ...]) -> None:
        self.what, self._real, self._script, self._tools = what, real, ROOT / script, tools
        # They are there from the start: C code may read the environment while a test changes variables that exist.
        self._steering = steering
        self.folder = ""
        self.loaded: Any = None
        self.why_not = "nobody called start()"

    def real(self) -> bool:
        """Tell whether tests run on real devices, and nothing is emulated."""
        return self._real in os.environ.get("MORI_REQUIRE", "").split(",")

    def start(self, name: str, *args: str) -> None:
        """Compile it with the script's arguments, or find it compiled, and load it by its name."""
        if self.real() or self.loaded is not None:
            return
        tools = [tool for tool in (*self._tools, "sh") if shutil.which(tool) is None]
        if tools:
            self.why_not = f"there is no {self.what}, and none can be emulated: {', '.join(tools)} is not installed"
            return
        self.folder = self.compile(*args)
        for variable in self._steering:
            os.environ.setdefault(variable, "")
        self.loaded = ctypes.CDLL(f"{self.folder}/{name}", mode=ctypes.RTLD_GLOBAL)

    def compile(self, *args: str) -> str:
        """Compile it with the script's arguments, or find it compiled, and return the folder that it is in."""
        command = ["sh", str(self._script), *args]
        made = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert made.returncode == 0, f"{self._script}: {made.stderr}"
        return made.stdout.strip()

    def child_env(self, **more: str) -> dict[str, str]:
        """Return the variables with which a process that is started finds it, and ``more`` then."""
        if not self.folder:
            return {}
        paths = [p for p in os.environ.get("LD_LIBRARY_PATH", "").split(":") if p and p != self.folder]
        return {"LD_LIBRARY_PATH": ":".join([self.folder, *paths]), **more}

    def need_emulated(self) -> None:
        """Skip the test on real devices, because it uses features that only emulated ones have."""
        import pytest  # not at the top: peers load this file too

        if self.real():
            pytest.skip(f"an emulated {self.what} is needed, and here are real ones")

    @contextlib.contextmanager
    def steered(self, **values: str) -> Iterator[None]:
        """Have other values of variables that steer it, until the block ends."""
        assert set(values) <= set(self._steering)
        before = {name: os.environ.get(name, "") for name in values}
        os.environ.update(values)
        try:
            yield
        finally:
            os.environ.update(before)
