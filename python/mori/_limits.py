# SPDX-License-Identifier: MIT
"""Check of the thread limit before the native runtime starts.

The Go runtime ends the process if it cannot start a thread.
"""

from __future__ import annotations

import threading

from ._errors import BusyError

# The Go runtime starts 5 threads at once. Under load on 2 cores, 12 were measured. Backends run
# their own check for more.
_THREADS = 16


def check_threads() -> None:
    """Raise BusyError if the process cannot start 16 threads.

    Starts 16 threads to find out, and joins them before it returns.
    """
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
