# SPDX-License-Identifier: MIT
"""numpy arrays that can carry the mark of symmetric tensors. Importing this imports numpy."""

from __future__ import annotations

from typing import Any

import numpy as np


class SymmetricArray(np.ndarray[Any, Any]):
    """A numpy array over symmetric memory. Only what ``mori_shmem_create_tensor`` returned is marked."""

    __symm_tensor__: bool = False
