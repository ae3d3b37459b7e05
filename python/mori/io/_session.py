# SPDX-License-Identifier: MIT
"""IOEngineSession: transfers between one local and one remote memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import _core
from .._errors import from_native
from . import _native
from ._status import TransferStatus
from ._transfer import check_deadline


class IOEngineSession:
    """Transfers between one local and one remote memory.

    :meth:`mori.io.IOEngine.create_session` makes one. A session looks up the pair and chooses the
    path once, so that each call is as cheap as possible. Every call submits and returns at once;
    the status that it returns reports the progress. Offsets and sizes are bytes from the start of
    the registered memory. Sequences of them may be lists, tuples, ranges or one-dimensional integer
    arrays.

    **Deadline.** Every transfer has one: ``deadline_ms`` of the call, else that of
    :meth:`with_deadline`, else the backend config's (30 s). 0 means no deadline. A transfer that
    misses it fails, with a message that says how far it got.

    **Tag.** A call may carry a ``tag`` of 1 to 64 bytes of UTF-8, such as a request id. The tag
    appears in failure messages, in :meth:`mori.io.IOEngine.stats`, in traces, and at the peer in
    :meth:`mori.io.IOEngine.inbound_tag`. It is sent separately from the bytes and may arrive after
    them. Transfers without a tag have no extra cost.

    **GPU order.** A transfer may wait for a GPU without blocking the caller. With ``after=event``
    it starts when the most recent record of the event completes. With ``after=stream`` it starts
    when the work queued on the stream before the call is done. Both may come from ``torch.cuda`` or
    ``mori.device``. The event may be recorded again or destroyed right after the call. The deadline
    counts from the call, and the transfer keeps its place in the order of completion. A GPU error
    fails the transfer with ERR_GPU_OP.

    **Limit.** An engine has at most ``MORI_IO_MAX_PENDING`` (65,536) pending transfers to one peer;
    0 means no limit. Each 256 blocks of a batch count as one more. At the limit a call waits with
    the GIL released, until its deadline but at most 30 s. If no transfer ends by then, its status
    is ERR_BAD_STATE.

    Calls may be made from any thread. Transfers of one engine to one peer succeed in the order of
    their submission, also across sessions. The session keeps its engine alive.
    """

    __slots__ = ("__weakref__", "_alloc_uid", "_engine", "_handle", "_post", "_post_one", "_session")

    def __init__(self, session: _native.IOEngineSession) -> None:
        self._session = session
        self._handle = session._handle
        self._engine = session._engine._handle
        fast = _core.fast()
        self._alloc_uid = fast.alloc_uid
        self._post: Callable[..., TransferStatus] = fast.post
        self._post_one: Callable[..., TransferStatus] = fast.post_one

    @property
    def _sess(self) -> _native.IOEngineSession:
        """The native session, under the name that callers of AMD's MORI use."""
        return self._session

    def with_deadline(self, deadline_ms: int) -> IOEngineSession:
        """Return a copy of this session with another deadline, in milliseconds; 0 means none.

        Raises:
            ValueError: ``deadline_ms`` is negative.
            TypeError: ``deadline_ms`` is not an integer.
        """
        return IOEngineSession(self._session.WithDeadline(check_deadline(deadline_ms)))

    def cancel(self, uid: int, timeout_ms: int = 5000) -> None:
        """Cancel the transfers with this number, like :meth:`TransferStatus.Cancel`.

        Does nothing if no transfer has this number.
        """
        self._session.Cancel(uid, timeout_ms)

    def allocate_transfer_uid(self) -> int:
        """Return the next transfer number of the engine; numbers start at 0 and are never reused."""
        try:
            uid: int = self._alloc_uid(self._engine)
        except RuntimeError as err:
            raise from_native(err) from None
        return uid

    def read(
        self,
        local_off: int,
        remote_off: int,
        size: int,
        uid: int,
        /,
        *,
        deadline_ms: int | None = None,
        tag: str | None = None,
        after: Any = None,
    ) -> TransferStatus:
        """Copy ``size`` bytes from the remote to the local memory.

        Waits while ``MORI_IO_MAX_PENDING`` transfers are pending.
        """
        return self._post_one(self._handle, False, local_off, remote_off, size, uid, deadline_ms, tag, after)

    def write(
        self,
        local_off: int,
        remote_off: int,
        size: int,
        uid: int,
        /,
        *,
        deadline_ms: int | None = None,
        tag: str | None = None,
        after: Any = None,
    ) -> TransferStatus:
        """Copy ``size`` bytes from the local to the remote memory.

        Waits while ``MORI_IO_MAX_PENDING`` transfers are pending.
        """
        return self._post_one(self._handle, True, local_off, remote_off, size, uid, deadline_ms, tag, after)

    def batch_read(
        self,
        local_offs: Sequence[int],
        remote_offs: Sequence[int],
        sizes: Sequence[int],
        uid: int,
        /,
        *,
        deadline_ms: int | None = None,
        tag: str | None = None,
        after: Any = None,
    ) -> TransferStatus:
        """Copy many blocks from the remote to the local memory, as one transfer with one status.

        Args:
            local_offs: destination offset of each block.
            remote_offs: source offset of each block.
            sizes: length of each block; zero is allowed. All three sequences have the same length.
            uid: number of the transfer, see :meth:`allocate_transfer_uid`.
            deadline_ms: deadline of this transfer; None takes the session's.
            tag: tag of this transfer, 1 to 64 bytes of UTF-8; None means no tag.
            after: GPU event or stream to wait for; None means no wait.

        Returns:
            A status that is SUCCESS when all blocks have arrived, and an error if any did not. If a
            block is out of bounds or the lengths differ, it is ERR_INVALID_ARGS and nothing is
            copied. An empty batch succeeds. At the limit ``MORI_IO_MAX_PENDING`` the call waits,
            and the status may be
            ERR_BAD_STATE: see the class.

        Raises:
            TypeError: an argument is not a sequence of integers from 0 to 2**64-1, the tag is not a
                str, or ``after`` is neither an event nor a stream.
            ValueError: the tag is empty or too long, or the event was never recorded.
        """
        return self._post(self._handle, False, local_offs, remote_offs, sizes, uid, deadline_ms, tag, after)

    def batch_write(
        self,
        local_offs: Sequence[int],
        remote_offs: Sequence[int],
        sizes: Sequence[int],
        uid: int,
        /,
        *,
        deadline_ms: int | None = None,
        tag: str | None = None,
        after: Any = None,
    ) -> TransferStatus:
        """Copy many blocks from the local to the remote memory, as one transfer with one status.

        Arguments, result, errors and the limit ``MORI_IO_MAX_PENDING`` are as in
        :meth:`batch_read`. SUCCESS means that the bytes are visible in the remote memory.
        """
        return self._post(self._handle, True, local_offs, remote_offs, sizes, uid, deadline_ms, tag, after)

    def alive(self) -> bool:
        """Report whether the session can still carry transfers."""
        return self._session.Alive()

    def describe(self) -> dict[str, Any]:
        """Return the session's path, why other paths are not used, and counters."""
        return self._session.Describe()
