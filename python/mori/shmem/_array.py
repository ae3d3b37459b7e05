# SPDX-License-Identifier: MIT
"""numpy arrays with the attribute that marks symmetric tensors. Importing this imports numpy."""

from __future__ import annotations

from typing import Any

import numpy as np


class SymmetricArray(np.ndarray[Any, Any]):
    """A numpy array over symmetric memory.

    Only arrays that ``mori_shmem_create_tensor`` returned have the mark.
    """

    __symm_tensor__: bool = False
