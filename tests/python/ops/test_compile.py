# SPDX-License-Identifier: MIT
"""Calls of mori.ops inside of functions that torch.compile has compiled."""

from __future__ import annotations

from typing import Any

import pytest

from mori.ops import EpDispatchCombineConfig, EpDispatchCombineOp
from ranks import Rank, on_ranks
from support import need_torch

pytestmark = pytest.mark.timeout(240)


@on_ranks(2, timeout=180)
@pytest.mark.filterwarnings("ignore:Dynamo does not know")
def test_compiled_surroundings(rank: Rank) -> None:
    need_torch()
    import torch

    op = EpDispatchCombineOp(EpDispatchCombineConfig(torch.float32, rank.me, rank.size, 16, 0, 0, 4, 8, 4, 2))
    combine = torch.compiler.disable(op.combine)  # as who wants no warning does it

    def layer(rows: Any, indices: Any) -> Any:
        came = op.dispatch(rows + 0, None, None, indices)[0]
        out, _ = combine((came * 2).contiguous(), None, indices)
        return out[: rows.shape[0]] + 1

    compiled = torch.compile(layer, backend="eager")
    indices = torch.tensor([[0, 4 * rank.size - 1]] * 5, dtype=torch.int32)  # of the first rank, and of the last
    for _ in range(3):
        rows = torch.randn(5, 16)
        torch.testing.assert_close(compiled(rows, indices), 2 * rank.size * rows + 1)
    op.close()
