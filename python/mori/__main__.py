# SPDX-License-Identifier: MIT
"""``python -m mori``: the same as the ``mori`` command."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
