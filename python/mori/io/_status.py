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
    """The state of one transfer (of a whole batch, for batch calls).

    ``TransferStatus()`` makes one in state INIT; the read and write calls return one already submitted. The engine
    keeps its own reference: dropping the object does not cancel the transfer, and the object stays readable after the
    engine is gone. All methods may be called from any thread. The object cannot be copied or pickled.
    """

    __slots__ = ()

    # Every instance is of the C subclass made by the extension, which overrides the methods below: a poll costs about
    # 100 ns and does not enter Go. The bodies here only carry the documentation.
    def __new__(cls) -> TransferStatus:
        status: TransferStatus = _core.fast().new_status()
        return status

    def Code(self) -> StatusCode:
        """Return the current code."""
        raise NotImplementedError

    def Message(self) -> str:
        """Return the text: empty, ``"success"``, or the reason of a failure, which names the peer."""
        raise NotImplementedError

    def Update(self, code: StatusCode, message: str) -> None:
        """Set code and message and wake the waiters; ignored once the status is an error (the first error stays)."""
        raise NotImplementedError

    def Init(self) -> bool:
        """Tell whether the code is INIT."""
        raise NotImplementedError

    def InProgress(self) -> bool:
        """Tell whether the code is IN_PROGRESS."""
        raise NotImplementedError

    def Succeeded(self) -> bool:
        """Tell whether the code is SUCCESS: the bytes are visible at their destination."""
        raise NotImplementedError

    def Failed(self) -> bool:
        """Tell whether the code is an error."""
        raise NotImplementedError

    def SetCode(self, code: StatusCode) -> None:
        """Set the code, even over an error; wakes the waiters unless it is INIT or IN_PROGRESS."""
        raise NotImplementedError

    def SetMessage(self, message: str) -> None:
        """Set the message."""
        raise NotImplementedError

    def Wait(self) -> None:
        """Block until the code is no longer IN_PROGRESS, without the GIL. Returns at once in any other state."""
        raise NotImplementedError

    def WaitFor(self, timeout_ms: int = -1) -> StatusCode:
        """Wait at most ``timeout_ms`` milliseconds and return the code then; a negative value waits without limit.

        0 polls once. When time runs out the answer is IN_PROGRESS, not an exception.
        """
        raise NotImplementedError

    def _handle(self) -> int:
        """Return the native handle."""
        raise NotImplementedError

    def Cancel(self, timeout_ms: int = 5000) -> None:
        """End the transfer; a transfer that has ended already is left alone.

        When the call returns, no byte of the transfer can land any more, neither here nor in the peer's memory, and the
        status is ERR_BAD_STATE with "canceled" in its message, unless all bytes were moved before: then it is, or
        becomes, SUCCESS. Other transfers go on.

        Args:
            timeout_ms: how long to wait for the peer to confirm; a negative value waits without limit.

        Raises:
            MoriTimeoutError: time ran out. No byte can land here; the peer may still write what it had received.
            ConnectionFailedError: the peer cannot be asked; otherwise as above.
        """
        _core.call("StatusCancel", self._handle(), timeout_ms)

    def __await__(self) -> Generator[Any, None, StatusCode]:
        """Wait in asyncio and return the code: ``code = await session.write(...)``.

        The event loop runs meanwhile; no thread is used. Cancelling the task that awaits does not cancel the transfer:
        its memory stays in use until it ended, see :meth:`Cancel`.
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
