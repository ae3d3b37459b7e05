# SPDX-License-Identifier: MIT
"""TransferStatus: the state of one transfer, shared by the caller and the engine."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NoReturn

from .. import _core
from . import _aio
from ._enums import StatusCode
from ._transfer import options


class TransferStatus:
    """The state of one transfer, or of a whole batch.

    ``TransferStatus()`` makes one in state INIT. The read and write calls return one that is
    already submitted. The engine holds its own reference, so dropping the object does not cancel
    the transfer. The object stays readable after the engine is closed. All methods may be called
    from any thread. The object cannot be copied or pickled.
    """

    __slots__ = ()

    # Every instance belongs to a C subclass that the extension makes. It overrides the methods
    # below, so that a poll costs about 100 ns and does not enter Go. The methods here are only
    # documentation.
    def __new__(cls) -> TransferStatus:
        status: TransferStatus = _core.fast().new_status()
        return status

    def Code(self) -> StatusCode:
        """Return the current code."""
        raise NotImplementedError

    def Message(self) -> str:
        """Return the message: empty, ``"success"``, or the reason for a failure, with the peer."""
        raise NotImplementedError

    def Update(self, code: StatusCode, message: str) -> None:
        """Set code and message and wake the waiters. Does nothing if the status is an error."""
        raise NotImplementedError

    def Init(self) -> bool:
        """Report whether the code is INIT."""
        raise NotImplementedError

    def InProgress(self) -> bool:
        """Report whether the code is IN_PROGRESS."""
        raise NotImplementedError

    def Succeeded(self) -> bool:
        """Report whether the code is SUCCESS: the bytes are visible at their destination."""
        raise NotImplementedError

    def Failed(self) -> bool:
        """Report whether the code is an error."""
        raise NotImplementedError

    def SetCode(self, code: StatusCode) -> None:
        """Set the code, even over an error. Wakes the waiters unless it is INIT or IN_PROGRESS."""
        raise NotImplementedError

    def SetMessage(self, message: str) -> None:
        """Set the message."""
        raise NotImplementedError

    def Wait(self) -> None:
        """Block while the code is IN_PROGRESS, with the GIL released."""
        raise NotImplementedError

    def WaitFor(self, timeout_ms: int = -1) -> StatusCode:
        """Wait at most ``timeout_ms`` milliseconds and return the code.

        0 polls once; a negative value waits without limit. On timeout it returns IN_PROGRESS and
        does not raise.
        """
        raise NotImplementedError

    def _handle(self) -> int:
        """Return the native handle."""
        raise NotImplementedError

    def Cancel(self, timeout_ms: int = 5000) -> None:
        """Cancel the transfer. Does nothing if it has ended already.

        After the call returns, the transfer writes no more bytes, neither here nor in the peer's
        memory. The status is then ERR_BAD_STATE with "canceled" in its message. If all bytes were
        moved before, it is or becomes SUCCESS. Other transfers continue.

        Args:
            timeout_ms: milliseconds to wait for the peer's confirmation; a negative value waits
                without limit.

        Raises:
            MoriTimeoutError: the peer did not confirm in time. No more bytes are written here; the
                peer may still write what it had received.
            ConnectionFailedError: the peer is not reachable; the effect is that of a timeout.
        """
        _core.call("StatusCancel", self._handle(), timeout_ms)

    def __await__(self) -> Generator[Any, None, StatusCode]:
        """Wait in asyncio and return the code: ``code = await session.write(...)``.

        The event loop keeps running, and no thread is used. Cancelling the awaiting task does not
        cancel the transfer: its memory stays in use until the transfer ends. See :meth:`Cancel`.
        """
        yield from _aio.wait(self).__await__()
        return self.Code()

    def __copy__(self) -> NoReturn:
        raise TypeError("a TransferStatus cannot be copied: the engine updates the original only")

    def __deepcopy__(self, _memo: object) -> NoReturn:
        raise TypeError("a TransferStatus cannot be copied: the engine updates the original only")

    def __reduce__(self) -> NoReturn:
        raise TypeError("a TransferStatus cannot be pickled: it belongs to this process")

    def __repr__(self) -> str:
        message = self.Message()
        return f"<TransferStatus {self.Code().name}{': ' + message if message else ''}>"


_core.provide_status(TransferStatus, {int(code): code for code in StatusCode}, options)
