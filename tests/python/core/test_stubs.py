# SPDX-License-Identifier: MIT
"""The type stubs name what the extension holds, no less and no more."""

import ast
from pathlib import Path

import mori
from mori import _core

NATIVE = Path(mori.__file__).parent / "_native"


def stub_functions(name: str) -> set[str]:
    tree = ast.parse((NATIVE / name).read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_fast_stub_names_every_function() -> None:
    module = _core.fast()
    held = {name for name, value in vars(module).items() if callable(value) and not isinstance(value, type)}
    assert {name for name in held if not name.startswith("_")} == stub_functions("_fast.pyi")


def test_extension_stub_names_every_function() -> None:
    assert _core.call("Version") == mori.__version__
    from mori._native import _moricore

    assert {name for name in vars(_moricore) if name.startswith("pybind_")} == stub_functions("_moricore.pyi")
