# SPDX-License-Identifier: MIT
"""mori.io beside perftest, on one device and in turns, so that what else the machine does slows both alike.

    python tests/rdma/speed.py [case ...]

Prints a line of JSON for each case: the rates of all samples, and the median of what ours were of theirs. The exit
status is 1 where that is below FLOOR, which is so low because on a shared machine a turn may be several times as slow
as the next one.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import sys
import time
from dataclasses import dataclass

import perftest

# Before the engines are made: shared memory would be faster, and both are to use one device.
os.environ |= {"FABRIC_PROVIDER": "verbs", "MORI_RDMA_DEVICES": os.environ["DEV0"]}

from mori.io import BackendType, IOEngine, IOEngineConfig, MemoryDesc, RdmaBackendConfig
from mori.tensor_utils import buffer_span

MIB = 1 << 20
FLOOR = 0.5
ROUNDS = 3


@dataclass(frozen=True)
class Case:
    """So many messages of a size, which lie apart at both ends, so that none can be merged."""

    name: str
    tool: str
    size: int
    count: int


CASES = (
    Case("write-1m", "ib_write_bw", MIB, 12),
    Case("write-4k", "ib_write_bw", 4096, 1024),
    Case("read-1m", "ib_read_bw", MIB, 12),
)
BYTES = 2 * 12 * MIB


class Ours:
    """Two engines, a buffer at each, and a session between them."""

    def __init__(self) -> None:
        self.engines = [IOEngine(name, IOEngineConfig("127.0.0.1", 0)) for name in ("speed-here", "speed-there")]
        for engine in self.engines:
            engine.create_backend(BackendType.RDMA, RdmaBackendConfig())
        here, there = self.engines
        here.register_remote_engine(there.get_engine_desc())
        there.register_remote_engine(here.get_engine_desc())
        content = random.Random(1).randbytes(MIB + 1)  # so that no two blocks are the same
        self.buffers = [bytearray((content * (BYTES // MIB))[:BYTES]), bytearray(BYTES)]
        ends = zip(self.engines, self.buffers, strict=True)
        self.descs = [engine.register_memory(*buffer_span(buffer)) for engine, buffer in ends]
        session = here.create_session(self.descs[0], MemoryDesc.unpack(self.descs[1].pack()))
        assert session is not None, here.describe()
        self.session = session

    def rate(self, case: Case) -> float:
        """MiB/s of a batch, all of whose bytes have come."""
        read = case.tool == "ib_read_bw"
        source, sink = reversed(self.buffers) if read else self.buffers
        if not any(source[:64]):
            source[:], sink[:] = sink, bytes(BYTES)
        sink[:] = bytes(BYTES)
        slots = random.Random(case.name)
        here, there = ([i * case.size for i in slots.sample(range(BYTES // case.size), case.count)] for _ in range(2))
        batch, sizes = self.session.batch_read if read else self.session.batch_write, [case.size] * case.count
        uid = self.session.allocate_transfer_uid()
        start = time.perf_counter()
        status = batch(here, there, sizes, uid)
        status.Wait()
        seconds = time.perf_counter() - start
        assert status.Succeeded(), status.Message()
        assert self.session.describe()["path"].startswith("verbs"), self.session.describe()
        for at, to in zip(there, here, strict=True) if read else zip(here, there, strict=True):
            assert sink[to : to + case.size] == source[at : at + case.size], f"{case.name}: wrong bytes at {to}"
        return case.size * case.count / MIB / seconds


def compare(ours: Ours, case: Case) -> float:
    """The median ratio, of turns whose order alternates."""
    ours.rate(case)  # which registers memory
    rates: dict[str, list[float]] = {"ours": [], "theirs": []}
    for number in range(ROUNDS):
        for name in ("ours", "theirs") if number % 2 else ("theirs", "ours"):
            rates[name].append(ours.rate(case) if name == "ours" else perftest.rate(case.tool, case.size, case.count))
    ratio = float(statistics.median(mine / other for mine, other in zip(*rates.values(), strict=True)))
    print(json.dumps({"case": case.name, "ratio": round(ratio, 3), "unit": "MiB/s",
                      **{name: [round(rate, 1) for rate in some] for name, some in rates.items()}}), flush=True)
    return ratio


def main() -> int:
    wanted = sys.argv[1:] or [case.name for case in CASES]
    ours = Ours()
    slow = [case.name for case in CASES if case.name in wanted and compare(ours, case) < FLOOR]
    if slow:
        print(f"less than {FLOOR} of perftest's rate: {', '.join(slow)}", file=sys.stderr)
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
