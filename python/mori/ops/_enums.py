# SPDX-License-Identifier: MIT
"""The closed sets of mori.ops, with their public numbers."""

from __future__ import annotations

import enum
from typing import Any


class EpDispatchCombineKernelType(enum.IntEnum):
    """The family of kernels that the caller asks for. On host memory all compute the same, in the same way.

    What differs is what may be called: two phases need ``AsyncLL``, routing handles ``IntraNode`` or ``InterNodeV1``,
    the standard-MoE adapters ``IntraNode`` or ``InterNodeV1LL``.
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
    """How the rows of combine travel."""

    None_ = 0
    """As they are."""
    Fp8DirectCast = 1
    """bfloat16 rows are cast to float8_e4m3fn; other types travel as they are. Good to a tenth of each element."""
    Fp8BlockwiseQuant = 2
    """bfloat16 rows become float8_e4m3fn with a scale for each block of a row. Good to 0.07."""
    Fp4BlockwiseQuant = 3
    """Needs a GPU with FP4 conversion; an op on host memory refuses it."""


_QUANT_TYPE_MAP: dict[str, EpDispatchCombineQuantType] = {
    "none": EpDispatchCombineQuantType.None_,
    "fp8_direct_cast": EpDispatchCombineQuantType.Fp8DirectCast,
    "fp8_blockwise": EpDispatchCombineQuantType.Fp8BlockwiseQuant,
    "fp4_blockwise": EpDispatchCombineQuantType.Fp4BlockwiseQuant,
}
"""The names that a configuration has for them."""


def _normalize_quant_type(quant_type: Any) -> EpDispatchCombineQuantType:
    """Return the member for a name, whose case and outer white space do not matter, or for a member.

    Raises:
        ValueError: it is neither.
    """
    if isinstance(quant_type, EpDispatchCombineQuantType):
        return quant_type
    found = _QUANT_TYPE_MAP.get(quant_type.strip().lower()) if isinstance(quant_type, str) else None
    if found is None:
        raise ValueError(f"invalid quant_type {quant_type!r}; supported are {', '.join(_QUANT_TYPE_MAP)}")
    return found


def quant_name(quant_type: EpDispatchCombineQuantType) -> str:
    """Return the name that a configuration has for it."""
    return next(name for name, member in _QUANT_TYPE_MAP.items() if member is quant_type)
