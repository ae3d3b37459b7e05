# SPDX-License-Identifier: MIT
"""Not here: the second version of the API stands on mori.cco, which this build lacks. Importing this module says so."""

raise ImportError(
    "mori.ops.dispatch_combine_v2 is not part of this build of mori, because it needs mori.cco; mori.ops has"
    " EpDispatchCombineOp",
    name=__name__,
)
