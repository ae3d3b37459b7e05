# SPDX-License-Identifier: MIT
"""Check that a test frees everything that it allocates on a GPU."""

from __future__ import annotations

import gc
import json
from collections import Counter
from collections.abc import Iterator

import pytest

from mori import _core, device


def live() -> Counter[str]:
    return Counter(json.loads(_core.call("DeviceLive")))


@pytest.fixture(autouse=True)
def nothing_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that uses a GPU and leaves memory, streams or events of this process open."""
    if "gpu" not in request.fixturenames:
        yield
        return
    request.getfixturevalue("gpu")
    for gpu in device.devices():  # the stream of calls without one stays
        with device.DeviceMemory(1, gpu.device) as memory:
            memory.fill(0)
    before = live()
    yield
    gc.collect()
    left = live() - before
    assert not left, f"left open: {dict(left)}"
