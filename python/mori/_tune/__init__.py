# SPDX-License-Identifier: MIT
"""`mori tune`: finds the best launches on the GPUs of this host and stores them in a table.

`_command` is the command, `ep` the measurement, and `tables` the file that package ep of the native
side reads in mode AUTO.
"""

from __future__ import annotations

from ._command import main as main
