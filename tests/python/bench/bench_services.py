# SPDX-License-Identifier: MIT
"""What the spawned process of these tests serves."""

from __future__ import annotations

import os
from collections.abc import Iterator

from mori._bench import raw_cma, raw_tcp
from mori._bench.memory import Pattern, Region

SEED, GRANULE, COUNT = 7, 4096, 64


class Echo:
    def __init__(self, greeting: str) -> None:
        self.greeting = greeting

    def greet(self, name: str) -> str:
        return f"{self.greeting}, {name}"

    def count(self, n: int) -> Iterator[int]:
        yield from range(n)
        return n

    def fail(self, text: str) -> None:
        raise RuntimeError(text)

    def die(self) -> None:
        os._exit(3)


class Memory:
    """A region, filled with the pattern on demand, and both raw ways to it."""

    def __init__(self) -> None:
        raw_cma.allow_peers()
        self.region = Region(GRANULE * COUNT)
        self.pattern = Pattern(SEED, GRANULE, COUNT)
        self.listener = raw_tcp.Listener()

    def where(self) -> tuple[int, int, int]:
        return os.getpid(), self.region.address, self.listener.port

    def fill(self) -> None:
        self.pattern.fill(self.region, ((i * GRANULE, i) for i in range(COUNT)))

    def wrong(self, pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
        return self.pattern.wrong(self.region, pairs)

    def receive(self, n: int) -> Iterator[str]:
        socks = self.listener.accept(n)
        yield "ready"
        raw_tcp.receive(socks, self.region.view, 2)

    def pong(self, rounds: int) -> Iterator[str]:
        socks = self.listener.accept(1)
        yield "ready"
        raw_tcp.pong(socks[0], rounds)
