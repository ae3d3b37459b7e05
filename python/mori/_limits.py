# SPDX-License-Identifier: MIT
"""A look at the limit on threads before the native runtime starts, which ends the process when it gets none."""

from __future__ import annotations

import threading

from ._errors import BusyError

# The runtime starts 5 at once, and 12 were measured under load on 2 cores. Backends check for more.
_THREADS = 16


def check_threads() -> None:
    """Raise BusyError unless the system gives 16 threads, which are started, and have ended on return."""
    gate = threading.Event()
    started: list[threading.Thread] = []
    try:
        for _ in range(_THREADS):
            thread = threading.Thread(target=gate.wait, daemon=True)
            thread.start()
            started.append(thread)
    except RuntimeError as err:
        raise BusyError(
            f"start the native runtime: {_THREADS} threads are needed, and the system gives {len(started)}: "
            "raise ulimit -u or pids.max of the cgroup"
        ) from err
    finally:
        gate.set()
        for thread in started:
            thread.join()
