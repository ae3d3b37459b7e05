# SPDX-License-Identifier: MIT
"""What has gone wrong with an op, and how its other ranks go on."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .. import _core
from .._errors import InvalidArgumentError, UnsupportedError
from . import _arrays as arrays

if TYPE_CHECKING:
    from ._config import EpDispatchCombineConfig


class Health:
    """The calls of an op that are about errors."""

    if TYPE_CHECKING:
        config: EpDispatchCombineConfig
        _handle: int
        _place: int
        _kept: list[Any]
        _tokens: int
        _received: int
        _has_weights: bool
        _has_packed: bool
        _dispatching: str
        _combining: str

    def check(self) -> None:
        """Raise what has gone wrong, as far as is known without waiting. On a GPU calls return before it can be known.

        Raises:
            ReceiveCapError: the rows of a dispatch found no room, and no call has said so.
            MoriTimeoutError, MismatchError, RuntimeError: why the op is broken.
        """
        _core.call("EPCheck", self._handle)

    def exclude(self, ranks: Iterable[int]) -> int:
        """Go on without ranks that have died: nobody waits for them, and their experts get nothing.

        For ops on a GPU, whose other ranks all call this with the same ranks, equally often, and then dispatch: what
        went wrong because of the missing ranks is forgotten, and so are the last dispatch and handles of routings. It
        waits for work of this op that is under way, which ends by itself, and for no other rank.

        Args:
            ranks: who is left out from now on, besides those that were before.

        Returns:
            How many ranks are left out.

        Raises:
            ValueError: there is no such rank, or it is this one.
            UnsupportedError: the op is on host memory.
        """
        mask = 0
        for rank in ranks:
            number = operator.index(rank)
            if not 0 <= number < self.config.world_size or number == self.config.rank:
                raise InvalidArgumentError(
                    f"exclude: rank {number} on rank {self.config.rank} of {self.config.world_size}"
                )
            mask |= 1 << number
        if self._place == arrays.HOST:
            raise UnsupportedError(
                "exclude: an op on host memory cannot continue after a rank has died; ops on GPUs can"
            )
        count: int = _core.call("EPExclude", self._handle, mask)
        self._tokens, self._received, self._has_weights, self._has_packed = -1, 0, False, False
        self._dispatching = self._combining = ""
        self._kept.clear()
        return count
