# SPDX-License-Identifier: MIT
"""Exceptions that mori raises.

Every class derives from :class:`MoriError`, which is a ``RuntimeError``. Most also derive from the
matching built-in class, so ``except ValueError`` or ``except TimeoutError`` work as expected.
Native errors arrive as text ``E_CODE|message``; :func:`from_native` converts them to these classes.

A failed transfer does not raise. Its :class:`mori.cpp.TransferStatus` reports the failure.
"""

from __future__ import annotations


class MoriError(RuntimeError):
    """Base of all errors of this package."""


class InvalidArgumentError(MoriError, ValueError):
    """An argument has the right type but an invalid value."""


class BadStateError(MoriError):
    """The object is in the wrong state: it is closed, or a required backend was not created."""


class NotFoundError(MoriError):
    """The engine does not know the peer, memory or session."""


class UnsupportedError(MoriError):
    """This host lacks something that the call needs: a GPU, a NIC or a permission."""


class MoriTimeoutError(MoriError, TimeoutError):
    """A wait reached its timeout."""


class ConnectionFailedError(MoriError, ConnectionError):
    """A peer could not be reached, or a socket could not be opened."""


class PEFailedError(ConnectionFailedError):
    """A PE of ``mori.shmem`` died, or left while others continued.

    All PEs get this error. To continue, finalize and init again.

    Attributes:
        pe: number of the failed PE.
    """

    def __init__(self, message: str = "", pe: int = -1) -> None:
        super().__init__(message)
        self.pe = pe


class OutOfMemoryError(MoriError, MemoryError):
    """The symmetric heap, the GPU or the host is out of memory."""


class MismatchError(MoriError):
    """PEs made different calls where all must make the same one.

    The message names the calls. Nothing was changed.
    """


class ReceiveCapError(MoriError, ValueError):
    """This rank's dispatch would exceed ``max_total_recv_tokens`` at a receiving rank.

    This rank sent nothing in this dispatch. The other ranks continue, and the op stays usable.
    """


class BusyError(MoriError):
    """A resource limit is reached for now, such as the process's threads or file descriptors.

    The same call may succeed later.
    """


class ForkError(MoriError):
    """The process was forked after mori had started in its parent.

    The native runtime does not survive a fork. Start child processes with the ``spawn`` or
    ``forkserver`` method, or fork before creating the first engine.
    """


class ExtensionError(MoriError, ImportError):
    """The native extension could not be loaded.

    The message lists what was tried and the likely causes.
    """


_BY_CODE: dict[str, type[Exception]] = {
    "E_ARG": InvalidArgumentError,
    "E_TYPE": TypeError,
    "E_STATE": BadStateError,
    "E_NOTFOUND": NotFoundError,
    "E_NOTIMPL": NotImplementedError,
    "E_UNSUPPORTED": UnsupportedError,
    "E_TIMEOUT": MoriTimeoutError,
    "E_CONN": ConnectionFailedError,
    "E_PE": PEFailedError,
    "E_NOMEM": OutOfMemoryError,
    "E_MISMATCH": MismatchError,
    "E_CAP": ReceiveCapError,
    "E_FORK": ForkError,
    "E_AGAIN": BusyError,
    "E_INTERNAL": MoriError,
}


def from_native(err: RuntimeError) -> Exception:
    """Return the MoriError for the native error ``err``; return ``err`` itself if it is one."""
    if type(err) is not RuntimeError:
        return err
    code, bar, message = str(err).partition("|")
    code, _, number = code.partition(":")
    kind = _BY_CODE.get(code) if bar else None
    if kind is PEFailedError:
        return PEFailedError(message, int(number))
    return kind(message) if kind is not None else MoriError(str(err))
