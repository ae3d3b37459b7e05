# SPDX-License-Identifier: MIT
from __future__ import annotations

import pytest

from support import need_torch


@pytest.fixture
def torch_here() -> None:
    """Skip the test, or fail it, where PyTorch is not installed."""
    need_torch()
