# SPDX-License-Identifier: MIT
"""What every side of a measurement has: an engine, and plain TCP connections to the other side."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass

from mori.io import EngineDesc, IOEngine, IOEngineSession, MemoryDesc

from . import raw_tcp
from .memory import Region
from .process import Remote


@dataclass(frozen=True)
class Card:
    """What the other side must know to open a session: packed descriptors, as any client would send them."""

    engine: bytes
    memory: bytes


class EngineSide:
    """`region` is the memory that raw connections send and fill. Who opens the engine registers the memory, too."""

    def __init__(self, region: Region) -> None:
        self.region = region
        self.engine: IOEngine | None = None
        self.memory: MemoryDesc | None = None
        self._listener: raw_tcp.Listener | None = None
        self._socks: dict[int, list[socket.socket]] = {}

    # The engine.

    def card(self) -> Card:
        assert self.engine is not None
        assert self.memory is not None
        return Card(self.engine.get_engine_desc().pack(), self.memory.pack())

    def meet(self, other: Card) -> None:
        assert self.engine is not None
        self.engine.register_remote_engine(EngineDesc.unpack(other.engine))

    def session(self, other: Card) -> IOEngineSession:
        assert self.engine is not None
        assert self.memory is not None
        session = self.engine.create_session(self.memory, MemoryDesc.unpack(other.memory))
        if session is None:
            raise RuntimeError(f"no path leads to the other side: {self.engine.describe()}")
        return session

    def shut(self) -> None:
        """Closes the engine; a side without one is left as it is."""
        if self.engine is not None:
            self.engine.close()
        self.engine = self.memory = None

    # Raw TCP.

    def raw_listen(self) -> int:
        self._listener = raw_tcp.Listener()
        return self._listener.port

    def raw_accept(self) -> None:
        assert self._listener is not None
        for n in raw_tcp.CONNECTIONS:
            self._socks[n] = self._listener.accept(n)
        self._listener.close()

    def raw_dial(self, port: int) -> None:
        for n in raw_tcp.CONNECTIONS:
            self._socks[n] = raw_tcp.dial(port, n)

    def raw_send(self, n: int, size: int, rounds: int) -> Iterator[str]:
        yield "ready"
        raw_tcp.send(self._socks[n], self.region.view[:size], rounds)

    def raw_receive(self, n: int, size: int, rounds: int) -> Iterator[str]:
        yield "ready"
        raw_tcp.receive(self._socks[n], self.region.view[:size], rounds)

    def raw_ping(self) -> None:
        raw_tcp.ping(self._socks[1][0])

    def raw_pong(self, rounds: int) -> Iterator[str]:
        yield "ready"
        raw_tcp.pong(self._socks[1][0], rounds)


def connect_raw(here: EngineSide, there: Remote) -> None:
    """Opens the plain connections between a side of this process and one of another."""
    port = there.call("raw_listen")
    there.begin("raw_accept")
    here.raw_dial(port)
    there.result()
