# SPDX-License-Identifier: MIT
"""An op's symmetric buffers as arrays. Each array is made once, so calls return the same arrays."""

from __future__ import annotations

from typing import Any

from . import _arrays as arrays
from ._arrays import Kind


class Buffers:
    """The arrays of one op, at the addresses that native code reports.

    The arrays and this object hold a reference to ``owner``.
    """

    def __init__(self, owner: object, where: dict[str, Any], topk: int, scale_dim: int, experts: int) -> None:
        self._owner = owner
        self.where = where
        self._topk, self._scale_dim, self._experts = topk, scale_dim, experts
        self.recv: int = where["sizes"]["recv"]
        self.inp: int = where["sizes"]["send_per_rank"]
        self._made: dict[Any, Any] = {}

    def _view(self, kind: Kind, name: str, shape: tuple[int, ...], dtype: Any) -> Any:
        key = (name, kind, shape, dtype)
        array = self._made.get(key)
        if array is None:
            array = self._made[key] = arrays.view(kind, self.where[name], shape, dtype, self._owner)
        return array

    def dispatched(self, kind: Kind, dtype: Any, hidden: int, scale_dtype: Any) -> tuple[Any, Any, Any, Any, Any]:
        """Return what dispatch returns: rows, weights, scales or None, indices, number of rows."""
        key = (kind, dtype, hidden, scale_dtype)
        made: tuple[Any, Any, Any, Any, Any] | None = self._made.get(key)
        if made is None:
            scales = None
            if scale_dtype is not None:
                scales = self._view(kind, "dispatch_out_scales", (self.recv, self._scale_dim), scale_dtype)
            made = self._made[key] = (
                self._view(kind, "dispatch_out", (self.recv, hidden), dtype),
                self._view(kind, "dispatch_out_weights", (self.recv, self._topk), "float32"),
                scales,
                self._view(kind, "dispatch_out_indices", (self.recv, self._topk), "int32"),
                self.total(kind),
            )
        return made

    def combined(self, kind: Kind, dtype: Any, hidden: int, has_weights: bool) -> tuple[Any, Any]:
        """Return what combine returns: sums, and sums of weights or None."""
        key = (kind, dtype, hidden, has_weights)
        made: tuple[Any, Any] | None = self._made.get(key)
        if made is None:
            weights = None
            if has_weights:
                weights = self._view(kind, "combine_out_weights", (self.inp, self._topk), "float32")
            made = self._made[key] = (self._view(kind, "combine_out", (self.inp, hidden), dtype), weights)
        return made

    def combine_in(self, kind: Kind, dtype: Any, hidden: int) -> Any:
        """Return the registered buffer for combine's input."""
        return self._view(kind, "combine_in", (self.recv, hidden), dtype)

    def total(self, kind: Kind) -> Any:
        """Return the number of received rows, int32 [1]."""
        return self._view(kind, "received", (1,), "int32")

    def local_counts(self, kind: Kind) -> Any:
        """Return the local expert count."""
        return self._view(kind, "local_counts", (self._experts,), "int32")

    def positions(self, kind: Kind) -> Any:
        """Return the source position of each received row, int32 [max_recv]."""
        return self._view(kind, "src_positions", (self.recv,), "int32")

    def own(self, kind: Kind, what: str, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return an array outside symmetric memory; the same arguments return the same array."""
        key = (what, kind, shape, dtype)
        array = self._made.get(key)
        if array is None:
            array = self._made[key] = arrays.empty(kind, shape, dtype, self.where["device"])
        return array
