# SPDX-License-Identifier: MIT
"""Errors of an op, and continuing without failed ranks."""

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
    """An op's calls for error handling."""

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
        """Raise an error that earlier calls could not raise, without waiting.

        On a GPU, calls return before their work is done, so errors are known only later.

        Raises:
            ReceiveCapError: a dispatch exceeded the receive cap, and no call has reported it yet.
            MoriTimeoutError, MismatchError, RuntimeError: the reason why the op is broken.
        """
        _core.call("EPCheck", self._handle)

    def exclude(self, ranks: Iterable[int]) -> int:
        """Continue without ranks that have died: do not wait for them or send to their experts.

        Supported for ops on a GPU. All remaining ranks call this with the same ranks, equally
        often, and then dispatch. The call clears errors caused by the missing ranks, and
        invalidates the last dispatch and all routing handles. It waits for this op's pending work
        on this rank, which ends by itself, and for no other rank.

        Args:
            ranks: ranks to exclude from now on, in addition to those excluded before.

        Returns:
            The number of excluded ranks.

        Raises:
            ValueError: a rank does not exist, or is this one.
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
