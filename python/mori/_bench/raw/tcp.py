# SPDX-License-Identifier: MIT
"""Plain blocking sockets on loopback, one thread for each connection.

The receiver stores the bytes in the memory that the measured transfer fills. Every round ends with
one byte back on each connection: a round is over when its last byte is received.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from ..harness import Turn, median_us
from ..process import Local, Remote

CHUNK = 1 << 20
CONNECTIONS = (1, 2, 4)
_TIMEOUT_S = 60
_WORD = b"8 bytes!"


class Streams:
    """The connections of one process to another.

    `views` returns the memory to move. `flow` and `pong` block until the other process takes part.
    """

    def __init__(self, views: Callable[[], Iterable[memoryview]]) -> None:
        self._views = views

    def listen(self) -> int:
        """Return the port of this host that queues the other process's connections for `accept`."""
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=max(CONNECTIONS))
        self._listener.settimeout(_TIMEOUT_S)
        return int(self._listener.getsockname()[1])

    def accept(self) -> None:
        with self._listener:
            self._sockets = [_tuned(self._listener.accept()[0]) for _ in range(max(CONNECTIONS))]

    def dial(self, port: int) -> None:
        where = "127.0.0.1", port
        self._sockets = [_tuned(socket.create_connection(where, _TIMEOUT_S)) for _ in range(max(CONNECTIONS))]

    def flow(self, sends: bool, n: int, size: int, rounds: int) -> float:
        """Send or receive the first `size` bytes of each view over n connections, `rounds` times.

        Return the seconds from the moment when both processes are ready.
        """
        step, answer = -(-size // n), memoryview(bytearray(1))
        shares = [[view[:size][i * step : (i + 1) * step] for view in self._views()] for i in range(n)]

        def serve(sock: socket.socket, parts: list[memoryview]) -> None:
            for part in parts * rounds:
                if sends:
                    for first in range(0, len(part), CHUNK):
                        sock.sendall(part[first : first + CHUNK])
                    _fill(sock, answer)
                else:
                    _fill(sock, part)
                    sock.sendall(answer)

        self._sockets[0].sendall(b"r")
        _fill(self._sockets[0], answer)
        start = time.perf_counter()
        with ThreadPoolExecutor(n) as pool:
            served = [pool.submit(serve, *other) for other in zip(self._sockets[1:], shares[1:], strict=False)]
            serve(self._sockets[0], shares[0])
            for one in served:
                one.result()
        return time.perf_counter() - start

    def ping(self) -> None:
        """Make one round trip of 8 bytes, which the other process's `pong` answers."""
        sock = self._sockets[0]
        sock.sendall(_WORD)
        if len(sock.recv(len(_WORD), socket.MSG_WAITALL)) != len(_WORD):
            raise ConnectionError("the other side closed a raw connection")

    def pong(self, rounds: int) -> None:
        for _ in range(rounds):
            self._sockets[0].sendall(self._sockets[0].recv(len(_WORD), socket.MSG_WAITALL))


def connect(one: Local, other: Local) -> None:
    """Connect the Streams that two services have as their attributes tcp."""
    one.call("tcp.dial", other.call("tcp.listen"))
    other.call("tcp.accept")


def streams(source: Local, target: Local, size: int, rounds: int, views: int = 1) -> dict[str, Turn]:
    """Return a turn for each number of connections: GB/s of `size` bytes of each view to the target."""
    local_last = sorted(((source, True), (target, False)), key=lambda side: not isinstance(side[0], Remote))

    def turn(n: int) -> float:
        for side, sends in local_last:
            side.begin("tcp.flow", sends, n, size, rounds)
        seconds: float = max(source.result(), target.result())
        return rounds * size * views / seconds / 1e9

    return {label(n): partial(turn, n) for n in CONNECTIONS}


def label(n: int) -> str:
    return f"{n} connection{'s' * (n > 1)}"


def ping_pong(local: Streams, remote: Remote, pings: int) -> float:
    """Return the median of the round trips in microseconds."""
    remote.begin("tcp.pong", pings + 1)
    local.ping()  # the other process is ready
    figure = median_us(local.ping, pings)
    remote.result()
    return figure


def _tuned(sock: socket.socket) -> socket.socket:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # The kernel's timeouts: one of Python's would cost a poll before each call.
    sock.settimeout(None)
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        sock.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", _TIMEOUT_S, 0))
    return sock


def _fill(sock: socket.socket, share: memoryview) -> None:
    done = 0
    while done < len(share):
        n = sock.recv_into(share[done : done + CHUNK])
        if n == 0:
            raise ConnectionError(f"a raw connection was closed after {done} of {len(share)} bytes")
        done += n
