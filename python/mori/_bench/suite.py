# SPDX-License-Identifier: MIT
"""What the command needs of a set of cases: io, shmem and ep each have one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from .cases import Case
from .measure import Plan


class Unavailable(RuntimeError):
    """The machine does not have what a case measures or is held against."""


class Suite(Protocol):
    """Cases, and between enter and exit the processes that run them."""

    @property
    def cases(self) -> Sequence[Case]:
        """What was asked for."""

    @property
    def how(self) -> list[str]:
        """What a reader must know of the figures, for the heading."""

    @property
    def facts(self) -> dict[str, object]:
        """What every result says besides its figures."""

    def __enter__(self) -> Suite: ...

    def __exit__(self, *failure: Any) -> None: ...

    def plan(self, case: Case) -> tuple[str, Plan]:
        """How the bytes travel, and what to do. Raises Unavailable."""
