# SPDX-License-Identifier: MIT
"""Not supported: version 2 of the API needs mori.cco, which this build lacks.

Importing this module raises an error that says so.
"""

raise ImportError(
    "mori.ops.dispatch_combine_v2 is not part of this build of mori, because it needs mori.cco; mori.ops has"
    " EpDispatchCombineOp",
    name=__name__,
)
