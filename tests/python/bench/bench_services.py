# SPDX-License-Identifier: MIT
"""The services of the processes that these tests spawn."""

from __future__ import annotations

import os

from mori._bench.memory import Pattern, Region
from mori._bench.raw import process_vm, tcp

SEED, GRANULE, COUNT = 7, 4096, 64


class Echo:
    def __init__(self, greeting: str) -> None:
        self.greeting = greeting

    def greet(self, name: str) -> str:
        return f"{self.greeting}, {name}"

    def fail(self, text: str) -> None:
        raise RuntimeError(text)

    def die(self) -> None:
        os._exit(3)


class Memory:
    """A region, filled with the pattern on demand, and the yardsticks that reach it."""

    def __init__(self) -> None:
        process_vm.allow_peers()
        self.region = Region(GRANULE * COUNT)
        self.pattern = Pattern(SEED, GRANULE, COUNT)
        self.tcp = tcp.Streams(lambda: [self.region.view])

    def where(self) -> tuple[int, int]:
        return os.getpid(), self.region.address

    def fill(self) -> None:
        self.pattern.fill(self.region, ((i * GRANULE, i) for i in range(COUNT)))

    def wrong(self, pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
        return self.pattern.wrong(self.region, pairs)
