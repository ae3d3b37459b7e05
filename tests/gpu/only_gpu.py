# SPDX-License-Identifier: MIT
"""A plugin of pytest (-p only_gpu): of what was collected it keeps the tests that use a GPU."""

from __future__ import annotations

from typing import Any

FIXTURES = {"gpu", "gpus", "memory"}


def uses_gpu(item: Any) -> bool:
    """Tell whether a test takes a GPU by a fixture, or is of a file that asks gpus.py for one."""
    if FIXTURES & set(getattr(item, "fixturenames", ())):
        return True
    names = vars(item.module) if hasattr(item, "module") else {}
    return any(getattr(value, "__module__", None) == "gpus" or name == "gpus" for name, value in names.items())


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    kept = [item for item in items if uses_gpu(item)]
    config.hook.pytest_deselected(items=[item for item in items if not uses_gpu(item)])
    items[:] = kept
