# SPDX-License-Identifier: MIT
"""Fixtures of the tests of mori.ops."""

from __future__ import annotations

import pytest

from arrays import Kind
from support import need_torch


@pytest.fixture(params=["numpy", "torch"])
def kind(request: pytest.FixtureRequest) -> Kind:
    """Each kind of array that mori.ops takes."""
    if request.param == "torch":
        need_torch()
    return request.param
