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
    """Transfers between one local and one remote memory; made by :meth:`mori.io.IOEngine.create_session`.

    A session is a prepared plan: the pair is looked up and the path chosen once, so each call costs the least. Offsets
    and sizes are bytes, relative to the start of the registered memory. Sequences of them may be lists, tuples, ranges
    or one-dimensional integer arrays. Every call submits and returns at once; the result reports its progress.

    Every transfer has a deadline: ``deadline_ms`` of the call if given, else of :meth:`with_deadline`, else the backend
    config's (30 s); 0 is none. A transfer that is late fails with a message that says how far it came.

    A call may carry a ``tag``, 1 to 64 bytes of UTF-8 such as the id of a request. It shows in the messages of
    failures, in :meth:`mori.io.IOEngine.stats`, in traces, and at the peer: :meth:`mori.io.IOEngine.inbound_tag`. It
    travels beside the bytes and may arrive after them. Without a tag there is nothing to pay for.

    A call may wait for a GPU: ``after=event`` begins when the event has happened as it was recorded last, and
    ``after=stream`` when the stream has done what it was given before the call. Both may be of ``torch.cuda`` or of
    ``mori.device``. The caller does not wait, and the event may be recorded again, or go, right after the call. The
    deadline counts from the call, and the transfer has its place in the order of successes. An error of the GPU is
    the transfer's, ERR_GPU_OP.

    At most ``MORI_IO_MAX_PENDING`` transfers (65,536) of an engine to one peer are pending; each 256 blocks of a batch
    count as one more. A call beyond that waits for room without the GIL, within its deadline and 30 s at most. Its
    status is ERR_BAD_STATE if no transfer has ended by then. 0 is no limit.

    Calls may be made from any thread. Transfers of one engine to one peer succeed in the order of their submission,
    whatever sessions they use. The session keeps its engine alive.
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
        """The native session, under the name that MORI's callers reach it by."""
        return self._session

    def with_deadline(self, deadline_ms: int) -> IOEngineSession:
        """Return this session with another deadline for its transfers, in milliseconds; 0 is none.

        Raises:
            ValueError: ``deadline_ms`` is negative.
            TypeError: it is not an integer.
        """
        return IOEngineSession(self._session.WithDeadline(check_deadline(deadline_ms)))

    def cancel(self, uid: int, timeout_ms: int = 5000) -> None:
        """End the transfers with this number, as :meth:`TransferStatus.Cancel` does; none is no error."""
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
        """Copy ``size`` bytes from the remote to the local memory; waits while ``MORI_IO_MAX_PENDING`` are pending."""
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
        """Copy ``size`` bytes from the local to the remote memory; waits while ``MORI_IO_MAX_PENDING`` are pending."""
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
            local_offs: where each block goes.
            remote_offs: where each block comes from.
            sizes: length of each block; zero is allowed. All three have the same length.
            uid: number of the transfer, see :meth:`allocate_transfer_uid`.
            deadline_ms: of this transfer; None takes the session's.
            tag: of this transfer, 1 to 64 bytes of UTF-8; None is none.
            after: an event or a stream of a GPU; None waits for nothing.

        Returns:
            A status that is SUCCESS when all blocks have arrived, and an error if any did not. Blocks out of bounds or
            sequences of different lengths give ERR_INVALID_ARGS, and nothing is copied. An empty batch is SUCCESS.
            With ``MORI_IO_MAX_PENDING`` transfers pending the call waits, and may give ERR_BAD_STATE: see the class.

        Raises:
            TypeError: an argument is not a sequence of integers from 0 to 2**64-1, the tag is no str, or ``after`` is
                neither an event nor a stream.
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

        Arguments, result and errors are those of :meth:`batch_read`, and so is the limit of ``MORI_IO_MAX_PENDING``.
        SUCCESS means that the bytes are visible in the remote memory.
        """
        return self._post(self._handle, True, local_offs, remote_offs, sizes, uid, deadline_ms, tag, after)

    def alive(self) -> bool:
        """Tell whether the session can still carry transfers."""
        return self._session.Alive()

    def describe(self) -> dict[str, Any]:
        """Return what the session does: its path, why the other paths are not used, and counters."""
        return self._session.Describe()
