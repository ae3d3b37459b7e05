# SPDX-License-Identifier: MIT
"""Plain blocking sockets on loopback, one thread for each connection.

The receiver stores the bytes in the memory that the measured transfer fills. Every round ends with
one byte back on each connection: a round is over when its last byte is received, not when it is queued.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator

from ..harness import Turn, median_us
from ..process import Remote, drain

CHUNK = 1 << 20
CONNECTIONS = (1, 2, 4)
_TIMEOUT_S = 60.0
_WORD = b"8 bytes!"


class Streams:
    """The connections of one process to another: sets of 1, 2 and 4. `views` returns the memory to move.

    Methods that block until the other process takes part are generators: they yield "ready" first
    and return the seconds that they took.
    """

    def __init__(self, views: Callable[[], Iterable[memoryview]]) -> None:
        self._views = views
        self._listener: socket.socket | None = None
        self._sets: dict[int, list[socket.socket]] = {}

    def listen(self) -> int:
        """Return the port of this host that accepts the other process's connections."""
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=max(CONNECTIONS))
        self._listener.settimeout(_TIMEOUT_S)
        port: int = self._listener.getsockname()[1]
        return port

    def accept(self) -> None:
        assert self._listener is not None
        with self._listener as listener:
            self._sets = {n: [_tuned(listener.accept()[0]) for _ in range(n)] for n in CONNECTIONS}

    def dial(self, port: int) -> None:
        def connect() -> socket.socket:
            return _tuned(socket.create_connection(("127.0.0.1", port), timeout=_TIMEOUT_S))

        self._sets = {n: [connect() for _ in range(n)] for n in CONNECTIONS}

    def send(self, n: int, size: int, rounds: int) -> Generator[str, None, float]:
        """Send the first `size` bytes of each view over n connections, `rounds` times."""

        def one(sock: socket.socket, share: memoryview) -> None:
            for first in range(0, len(share), CHUNK):
                sock.sendall(share[first : first + CHUNK])
            _fill(sock, memoryview(bytearray(1)))

        yield "ready"
        return self._on_all(n, size, rounds, one)

    def receive(self, n: int, size: int, rounds: int) -> Generator[str, None, float]:
        """Receive what `send` sends into the same part of each view."""

        def one(sock: socket.socket, share: memoryview) -> None:
            _fill(sock, share)
            sock.sendall(b"k")

        yield "ready"
        return self._on_all(n, size, rounds, one)

    def _on_all(self, n: int, size: int, rounds: int, one: Callable[[socket.socket, memoryview], None]) -> float:
        """Divide each view among n connections, a thread for each. Return the seconds."""
        shares: list[list[memoryview]] = [[] for _ in range(n)]
        for view in self._views():
            step = -(-size // n)
            for i in range(n):
                shares[i].append(view[i * step : min((i + 1) * step, size)])
        failures: list[Exception] = []

        def serve(sock: socket.socket, parts: list[memoryview]) -> None:
            try:
                for _ in range(rounds):
                    for part in parts:
                        one(sock, part)
            except (OSError, ValueError) as err:
                failures.append(err)

        start = time.perf_counter()
        pairs = list(zip(self._sets[n], shares, strict=True))
        threads = [threading.Thread(target=serve, args=pair, daemon=True) for pair in pairs[1:]]
        for thread in threads:
            thread.start()
        serve(*pairs[0])
        for thread in threads:
            thread.join(_TIMEOUT_S)
            if thread.is_alive():
                raise TimeoutError(f"a raw TCP stream did not finish within {_TIMEOUT_S:.0f} s")
        if failures:
            raise failures[0]
        return time.perf_counter() - start

    def ping(self) -> None:
        """Make one round trip of 8 bytes, which the other process's `pong` answers."""
        sock = self._sets[1][0]
        sock.sendall(_WORD)
        if len(sock.recv(len(_WORD), socket.MSG_WAITALL)) != len(_WORD):
            raise ConnectionError("the other side closed a raw connection")

    def pong(self, rounds: int) -> Iterator[str]:
        yield "ready"
        for _ in range(rounds):
            self._sets[1][0].sendall(self._sets[1][0].recv(len(_WORD), socket.MSG_WAITALL))


def connect(local: Streams, remote: Remote) -> None:
    """Open the connections to the Streams that the other process has as its attribute tcp."""
    port = remote.call("tcp.listen")
    remote.begin("tcp.accept")
    local.dial(port)
    remote.result()


def streams(local: Streams, remote: Remote, size: int, rounds: int, read: bool) -> dict[str, Turn]:
    """Return a turn for each number of connections: GB/s to the other process, or from it."""

    def turn(n: int) -> Turn:
        def flow() -> float:
            remote.begin("tcp.send" if read else "tcp.receive", n, size, rounds)
            remote.event()
            seconds: float = drain((local.receive if read else local.send)(n, size, rounds))
            remote.result()
            return rounds * size / seconds / 1e9

        return flow

    return {label(n): turn(n) for n in CONNECTIONS}


def label(n: int) -> str:
    return f"{n} connection{'s' * (n > 1)}"


def ping_pong(local: Streams, remote: Remote, pings: int) -> float:
    """Return the median of the round trips in microseconds."""
    remote.begin("tcp.pong", pings)
    remote.event()
    figure = median_us(local.ping, pings)
    remote.result()
    return figure


def _tuned(sock: socket.socket) -> socket.socket:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # The kernel's timeouts: one of Python's would cost a poll before each call.
    sock.settimeout(None)
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        sock.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", int(_TIMEOUT_S), 0))
    return sock


def _fill(sock: socket.socket, share: memoryview) -> None:
    done = 0
    while done < len(share):
        n = sock.recv_into(share[done : done + CHUNK])
        if n == 0:
            raise ConnectionError(f"the other side closed a raw connection after {done} of {len(share)} bytes")
        done += n
