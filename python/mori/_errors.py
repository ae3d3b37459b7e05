# SPDX-License-Identifier: MIT
"""What mori raises.

Every class derives from :class:`MoriError`, which is a ``RuntimeError``; each also derives from the built-in class
that says the same thing, so ``except ValueError`` or ``except TimeoutError`` work as expected. Errors of the native
side arrive as text ``E_CODE|message``; :func:`from_native` turns that into one of these classes.

Transfers do not raise when they fail: their :class:`mori.cpp.TransferStatus` says so.
"""

from __future__ import annotations


class MoriError(RuntimeError):
    """Base of all errors of this package."""


class InvalidArgumentError(MoriError, ValueError):
    """An argument has the right type and an impossible value."""


class BadStateError(MoriError):
    """The object cannot do this now: it is closed, or a needed backend was not created."""


class NotFoundError(MoriError):
    """A peer, a memory or a session is not known to the engine."""


class UnsupportedError(MoriError):
    """This host conclusively lacks what the call needs (a GPU, a NIC, a permission)."""


class MoriTimeoutError(MoriError, TimeoutError):
    """A bounded wait ended without an answer."""


class ConnectionFailedError(MoriError, ConnectionError):
    """A peer could not be reached, or a socket could not be opened."""


class PEFailedError(ConnectionFailedError):
    """A PE of ``mori.shmem`` died, or left while others continued. All PEs get this error; init again after a finalize.

    Attributes:
        pe: its number.
    """

    def __init__(self, message: str = "", pe: int = -1) -> None:
        super().__init__(message)
        self.pe = pe


class OutOfMemoryError(MoriError, MemoryError):
    """The symmetric heap, the GPU, or the machine has no room for it."""


class MismatchError(MoriError):
    """The PEs made different calls where all must make the same; the text names them. Nothing was changed."""


class ReceiveCapError(MoriError, ValueError):
    """This rank's tokens would bring more rows to a rank than ``max_total_recv_tokens`` lets it receive.

    Nothing of this dispatch of this rank was sent; the other ranks, and the op, go on.
    """


class BusyError(MoriError):
    """A resource is taken for the moment, such as the threads or descriptors that this process may have.

    The same call may succeed later.
    """


class ForkError(MoriError):
    """The process was forked after mori had started in its parent.

    The native runtime does not survive a fork. Start such children with the ``spawn`` or ``forkserver`` method, or
    fork before the first engine is made.
    """


class ExtensionError(MoriError, ImportError):
    """The native extension could not be loaded; the text lists what was tried and the likely causes."""


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
    """Return the exception that the native error ``err`` stands for; ``err`` itself if it is ours already."""
    if type(err) is not RuntimeError:
        return err
    code, bar, message = str(err).partition("|")
    code, _, number = code.partition(":")
    kind = _BY_CODE.get(code) if bar else None
    if kind is PEFailedError:
        return PEFailedError(message, int(number))
    return kind(message) if kind is not None else MoriError(str(err))
