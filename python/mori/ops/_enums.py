# SPDX-License-Identifier: MIT
"""The enums of mori.ops, with their public integer values."""

from __future__ import annotations

import enum
from typing import Any


class EpDispatchCombineKernelType(enum.IntEnum):
    """The kernel family that the caller asks for. On host memory all give the same results.

    The family decides which calls are available:

    * Two-phase calls (send and recv) need ``AsyncLL``.
    * Routing handles need ``IntraNode`` or ``InterNodeV1``.
    * The standard-MoE calls need ``IntraNode`` or ``InterNodeV1LL``.
    """

    IntraNode = 0
    InterNode = 1
    InterNodeV1 = 2
    InterNodeV1LL = 3
    AsyncLL = 4
    IntraNodeLL = 5

    def __str__(self) -> str:
        return self.name


class EpDispatchCombineQuantType(enum.IntEnum):
    """How combine quantises the rows that it sends."""

    None_ = 0
    """No quantisation."""
    Fp8DirectCast = 1
    """bfloat16 rows are cast to float8_e4m3fn; others are unchanged. Error: 0.1 of an element."""
    Fp8BlockwiseQuant = 2
    """bfloat16 rows are sent as float8_e4m3fn with a scale for each block of a row. Error: 0.07."""
    Fp4BlockwiseQuant = 3
    """Needs a GPU with FP4 conversion. An op on host memory refuses it."""


_QUANT_TYPE_MAP: dict[str, EpDispatchCombineQuantType] = {
    "none": EpDispatchCombineQuantType.None_,
    "fp8_direct_cast": EpDispatchCombineQuantType.Fp8DirectCast,
    "fp8_blockwise": EpDispatchCombineQuantType.Fp8BlockwiseQuant,
    "fp4_blockwise": EpDispatchCombineQuantType.Fp4BlockwiseQuant,
}
"""The names of the quant types in a configuration."""


def _normalize_quant_type(quant_type: Any) -> EpDispatchCombineQuantType:
    """Return the member for a name or a member. Case and surrounding white space are ignored.

    Raises:
        ValueError: ``quant_type`` is neither.
    """
    if isinstance(quant_type, EpDispatchCombineQuantType):
        return quant_type
    found = _QUANT_TYPE_MAP.get(quant_type.strip().lower()) if isinstance(quant_type, str) else None
    if found is None:
        raise ValueError(f"invalid quant_type {quant_type!r}; supported are {', '.join(_QUANT_TYPE_MAP)}")
    return found


def quant_name(quant_type: EpDispatchCombineQuantType) -> str:
    """Return the name of a quant type in a configuration."""
    return next(name for name, member in _QUANT_TYPE_MAP.items() if member is quant_type)
