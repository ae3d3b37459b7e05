# SPDX-License-Identifier: MIT
"""`mori tune`: finds the best launches on the GPUs of this host and stores them in a table.

`ep` is the command and the measurement; `tables` is the file that package ep of the native side
reads in mode AUTO.
"""

from __future__ import annotations

from .ep import main as main
