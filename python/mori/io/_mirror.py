# SPDX-License-Identifier: MIT
"""Status objects that the caller passes in, for the native form of the transfer calls.

The engine reports to a status that it made itself. A mirror copies the outcome to the caller's
object. If the outcome is known, it is copied at once. Otherwise one thread copies it later, in the
order of completion. The thread runs only while transfers are pending.
"""

from __future__ import annotations

import threading

from ._enums import StatusCode
from ._status import TransferStatus

# Milliseconds between two checks of the other transfers while the oldest is pending.
_SWEEP_MS = 20


class Mirror:
    """Copies outcomes for one engine."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pending: list[tuple[TransferStatus, TransferStatus]] = []

    def follow(self, source: TransferStatus, target: TransferStatus) -> None:
        """Make ``target`` show the state of ``source``, now and when it ends."""
        with self._lock:
            # Even a transfer that has ended is queued if others are pending: earlier ones may have
            # ended without being copied yet.
            if self._pending or source.InProgress():
                target.SetCode(StatusCode.IN_PROGRESS)
                self._pending.append((source, target))
                if len(self._pending) == 1:
                    threading.Thread(target=self._run, name="mori-mirror", daemon=True).start()
                return
        _copy(source, target)

    def _run(self) -> None:
        while True:
            self._pending[0][0].WaitFor(_SWEEP_MS)
            with self._lock:
                going = []
                for source, target in self._pending:
                    if source.InProgress():
                        going.append((source, target))
                    else:
                        _copy(source, target)
                self._pending = going
                if not going:
                    return


def _copy(source: TransferStatus, target: TransferStatus) -> None:
    target.SetMessage(source.Message())
    target.SetCode(source.Code())
