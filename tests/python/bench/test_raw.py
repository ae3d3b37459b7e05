# SPDX-License-Identifier: MIT
"""The raw limits really move the bytes that they are timed for."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from bench_services import COUNT, GRANULE, SEED

from mori._bench.memory import Pattern, Region
from mori._bench.process import Local, Remote
from mori._bench.raw import process_vm, tcp

TURNED = [(i * GRANULE, COUNT - 1 - i) for i in range(COUNT)]


@pytest.fixture
def remote() -> Iterator[Remote]:
    with Remote("memory", "bench_services:Memory") as made:
        yield made


@pytest.fixture
def region() -> Region:
    process_vm.allow_peers()
    return Region(GRANULE * COUNT)


@pytest.mark.parametrize("per_call", [1, 7, process_vm.IOV_MAX])
def test_copies_read_and_write_every_block(remote: Remote, region: Region, per_call: int) -> None:
    pid, base = remote.call("where")
    here = [region.address + offset for offset, _ in TURNED]
    there = [base + index * GRANULE for _, index in TURNED]
    copies = process_vm.Copies(pid, here, there, GRANULE, per_call=per_call)
    pattern = Pattern(SEED, GRANULE, COUNT)

    remote.call("fill")
    copies.read()
    assert pattern.wrong(region, TURNED) == []

    pattern.fill(region, ((i * GRANULE, i) for i in range(COUNT)))
    copies.write()
    assert remote.call("wrong", TURNED) == []


def test_copies_of_a_process_that_is_not_there_name_it() -> None:
    region = Region(GRANULE)
    copies = process_vm.Copies(2**22 + 1, [region.address], [region.address], GRANULE)
    with pytest.raises(OSError, match="process_vm_readv of process 4194305"):
        copies.read()


def test_copies_refuse_lists_of_different_lengths() -> None:
    with pytest.raises(ValueError, match="2 local addresses, 1 remote"):
        process_vm.Copies(1, [1, 2], [1], 8)


@pytest.fixture
def streams(remote: Remote, region: Region) -> tcp.Streams:
    made = tcp.Streams(lambda: [region.view])
    tcp.connect(Local(SimpleNamespace(tcp=made)), remote)
    return made


@pytest.mark.parametrize("n", tcp.CONNECTIONS)
def test_a_stream_arrives_whole_over_any_number_of_connections(
    remote: Remote, region: Region, streams: tcp.Streams, n: int
) -> None:
    Pattern(SEED, GRANULE, COUNT).fill(region, ((i * GRANULE, i) for i in range(COUNT)))
    remote.begin("tcp.flow", False, n, region.size, 2)
    assert streams.flow(True, n, region.size, 2) > 0
    assert remote.result() > 0
    assert remote.call("wrong", [(i * GRANULE, i) for i in range(COUNT)]) == []


def test_a_turn_reads_as_well_as_it_writes(remote: Remote, region: Region, streams: tcp.Streams) -> None:
    remote.call("fill")
    for name, turn in tcp.streams(remote, Local(SimpleNamespace(tcp=streams)), region.size, 1).items():
        region.wipe()
        assert turn() > 0
        assert Pattern(SEED, GRANULE, COUNT).wrong(region, [(i * GRANULE, i) for i in range(COUNT)]) == [], name


def test_pings_come_back(remote: Remote, streams: tcp.Streams) -> None:
    assert tcp.ping_pong(streams, remote, 3) > 0
