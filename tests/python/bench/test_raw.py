# SPDX-License-Identifier: MIT
"""The raw limits really move the bytes that they are timed for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from bench_services import COUNT, GRANULE, SEED

from mori._bench import raw_cma, raw_tcp
from mori._bench.memory import Pattern, Region
from mori._bench.process import Remote

TURNED = [(i * GRANULE, COUNT - 1 - i) for i in range(COUNT)]


@pytest.fixture
def remote() -> Iterator[Remote]:
    with Remote("memory", "bench_services:Memory") as made:
        yield made


@pytest.fixture
def region() -> Region:
    raw_cma.allow_peers()
    return Region(GRANULE * COUNT)


@pytest.mark.parametrize("per_call", [1, 7, raw_cma.IOV_MAX])
def test_copies_read_and_write_every_block(remote: Remote, region: Region, per_call: int) -> None:
    pid, base, _ = remote.call("where")
    here = [region.address + offset for offset, _ in TURNED]
    there = [base + index * GRANULE for _, index in TURNED]
    copies = raw_cma.Copies(pid, here, there, GRANULE, entries_per_call=per_call)
    pattern = Pattern(SEED, GRANULE, COUNT)

    remote.call("fill")
    copies.read()
    assert pattern.wrong(region, TURNED) == []

    pattern.fill(region, ((i * GRANULE, i) for i in range(COUNT)))
    copies.write()
    assert remote.call("wrong", TURNED) == []


def test_copies_of_a_process_that_is_not_there_name_it() -> None:
    region = Region(GRANULE)
    copies = raw_cma.Copies(2**22 + 1, [region.address], [region.address], GRANULE)
    with pytest.raises(OSError, match="process_vm_readv of process 4194305"):
        copies.read()


def test_copies_refuse_lists_of_different_lengths() -> None:
    with pytest.raises(ValueError, match="2 addresses here, 1 there"):
        raw_cma.Copies(1, [1, 2], [1], 8)


@pytest.mark.parametrize("n", raw_tcp.CONNECTIONS)
def test_a_stream_arrives_whole_over_any_number_of_connections(remote: Remote, region: Region, n: int) -> None:
    _, _, port = remote.call("where")
    Pattern(SEED, GRANULE, COUNT).fill(region, ((i * GRANULE, i) for i in range(COUNT)))
    remote.begin("receive", n)
    socks = raw_tcp.dial(port, n)
    assert remote.event() == "ready"
    raw_tcp.send(socks, region.view, 2)
    remote.result()
    assert remote.call("wrong", [(i * GRANULE, i) for i in range(COUNT)]) == []


def test_pings_come_back(remote: Remote) -> None:
    _, _, port = remote.call("where")
    remote.begin("pong", 3)
    [sock] = raw_tcp.dial(port, 1)
    assert remote.event() == "ready"
    for _ in range(3):
        raw_tcp.ping(sock)
    remote.result()
