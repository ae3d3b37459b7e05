# SPDX-License-Identifier: MIT
"""The raw limit of TCP: plain blocking sockets on loopback, one thread per connection.

The receiving side puts the bytes into the same memory that the measured transfer fills. Every round ends with one byte
back on each connection, so a round is over when the last byte has been received, not when it has been queued.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable

CHUNK = 1 << 20
CONNECTIONS = (1, 2, 4)
_TIMEOUT_S = 60.0
_WORD = b"8 bytes!"


class Listener:
    """Accepts the connections of one peer."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=max(CONNECTIONS))
        self._socket.settimeout(_TIMEOUT_S)
        self.port: int = self._socket.getsockname()[1]

    def accept(self, n: int) -> list[socket.socket]:
        return [_tuned(self._socket.accept()[0]) for _ in range(n)]

    def close(self) -> None:
        self._socket.close()


def dial(port: int, n: int) -> list[socket.socket]:
    """Opens n connections to a listener of this host."""
    return [_tuned(socket.create_connection(("127.0.0.1", port), timeout=_TIMEOUT_S)) for _ in range(n)]


def _tuned(sock: socket.socket) -> socket.socket:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # A Python timeout would make the socket non-blocking and cost a poll before each call.
    sock.settimeout(None)
    return sock


def send(socks: list[socket.socket], view: memoryview, rounds: int) -> None:
    """Sends the whole view `rounds` times, its bytes divided among the connections, and waits for the receiver."""

    def one(sock: socket.socket, share: memoryview) -> None:
        for _ in range(rounds):
            for first in range(0, len(share), CHUNK):
                sock.sendall(share[first : first + CHUNK])
            _receive(sock, memoryview(bytearray(1)))

    _on_all(socks, view, one)


def receive(socks: list[socket.socket], view: memoryview, rounds: int) -> None:
    """Receives what `send` sends, `rounds` times into the same view."""

    def one(sock: socket.socket, share: memoryview) -> None:
        for _ in range(rounds):
            _receive(sock, share)
            sock.sendall(b"k")

    _on_all(socks, view, one)


def ping(sock: socket.socket) -> None:
    """One round trip of 8 bytes, answered by `pong`."""
    sock.sendall(_WORD)
    if len(sock.recv(len(_WORD), socket.MSG_WAITALL)) != len(_WORD):
        raise ConnectionError("the other side closed a raw connection")


def pong(sock: socket.socket, rounds: int) -> None:
    """Answers `rounds` round trips."""
    for _ in range(rounds):
        sock.sendall(sock.recv(len(_WORD), socket.MSG_WAITALL))


def _receive(sock: socket.socket, share: memoryview) -> None:
    done = 0
    while done < len(share):
        n = sock.recv_into(share[done : done + CHUNK])
        if n == 0:
            raise ConnectionError(f"the other side closed a raw connection after {done} of {len(share)} bytes")
        done += n


def _on_all(socks: list[socket.socket], view: memoryview, one: Callable[[socket.socket, memoryview], None]) -> None:
    shares = _divide(view, len(socks))
    if len(socks) == 1:
        one(socks[0], shares[0])
        return
    failures: list[Exception] = []

    def guarded(sock: socket.socket, share: memoryview) -> None:
        try:
            one(sock, share)
        except (OSError, ValueError) as err:
            failures.append(err)

    threads = [threading.Thread(target=guarded, args=pair, daemon=True) for pair in zip(socks, shares, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_TIMEOUT_S)
        if thread.is_alive():
            raise TimeoutError(f"a raw TCP stream did not finish within {_TIMEOUT_S:.0f} s")
    if failures:
        raise failures[0]


def _divide(view: memoryview, n: int) -> list[memoryview]:
    step = -(-len(view) // n)
    return [view[i * step : (i + 1) * step] for i in range(n)]
