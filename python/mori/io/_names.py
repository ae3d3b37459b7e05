# SPDX-License-Identifier: MIT
"""Aliases of argument names."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def also(**names: str) -> Callable[[F], F]:
    """Accept aliases of arguments: with ``@also(desc="engine_desc")``, ``desc=`` works too.

    Programs written for AMD's MORI use its names; older programs of this project use the aliases.
    Passing both raises TypeError.
    """

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if kwargs:
                for second, first in names.items():
                    if second not in kwargs:
                        continue
                    if first in kwargs:
                        both = f"{first!r} and {second!r}, which are the same argument"
                        raise TypeError(f"{function.__name__}() got {both}")
                    kwargs[first] = kwargs.pop(second)
            return function(*args, **kwargs)

        return call  # type: ignore[return-value]

    return decorate
