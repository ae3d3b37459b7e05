# SPDX-License-Identifier: MIT
"""The compiled extension and its type stubs.

Only ``mori._core`` imports from here; importing ``_moricore`` loads the Go runtime.
"""
