# SPDX-License-Identifier: MIT
"""Second names of arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def also(**names: str) -> Callable[[F], F]:
    """Let a function take arguments under second names: ``@also(desc="engine_desc")`` takes ``desc=``, too.

    Programs written for AMD's MORI use its names, older ones of ours the second. Both at once are a TypeError.
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
