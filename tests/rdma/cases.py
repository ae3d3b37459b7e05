# SPDX-License-Identifier: MIT
"""The cases of tests/rdma/run.

A command is a line of shell. It runs in the root of the tree and finds in its environment: DEV0 and DEV1, the devices,
the same where there is only one; GID0 and GID1, the indices of their GIDs, empty where none is needed; ADDR0, the
address of the first node; BIN, the folder with Go's test programs; PYTHON; and with two nodes what vm/README.md says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import figures


@dataclass(frozen=True)
class Case:
    """One thing to show, in one or two guests."""

    name: str
    what: str  # for the table
    command: str
    limit: float = 180  # seconds, for what hangs: far more than any takes in a guest of a busy machine
    nodes: int = 1
    package: str = ""  # the folder of the Go package whose test program it needs
    alters: bool = False  # takes links down or loses packets: in a guest only
    figures: Callable[[str], dict[str, float]] | None = None


def perftest(name: str, what: str, tool: str, size: int, iterations: int) -> Case:
    """A bandwidth test of perftest. -F: the guest's clock is no reason to stop."""
    return Case(name, what, f"tests/rdma/pair -x {tool} -F -s {size} -n {iterations}", figures=figures.bandwidth)


def go(name: str, what: str, package: str, run: str = ".", limit: float = 180, *, nodes: int = 1, alters: bool = False,
       skip: str = "", parallel: int = 1) -> Case:
    """The tests of a Go package that ``run`` matches; ``parallel`` of those that allow it at a time."""
    program = f"$BIN/{package.replace('/', '.')}.test"
    flags = f"-test.v -test.parallel {parallel} -test.run '{run}' -test.timeout {limit:.0f}s"
    if skip:
        flags += f" -test.skip '{skip}'"
    return Case(name, what, f"cd {package} && exec {program} {flags}", limit + 5, nodes, package, alters, figures.tests)


def python(name: str, what: str, arguments: str, limit: float = 180, *, nodes: int = 1, alters: bool = False) -> Case:
    """Tests of Python."""
    command = f"exec $PYTHON -m pytest -q -p no:cacheprovider --timeout {limit:.0f} {arguments}"
    return Case(name, what, command, limit + 5, nodes, alters=alters, figures=figures.tests)


def hosts(name: str, what: str, scenario: str, limit: float = 300) -> Case:
    """A scenario of hosts.py."""
    return Case(name, what, f"exec $PYTHON tests/rdma/hosts.py {scenario}", limit, nodes=2)


CASES = (
    Case("devices", "ibv_devinfo: the devices are there and active",
         'for dev in $DEV0 $DEV1; do ibv_devinfo -v -d $dev | tee /dev/stderr | grep -q PORT_ACTIVE || exit; done',
         limit=60),
    Case("pingpong", "ibv_rc_pingpong: send and receive between two devices",
         "tests/rdma/pair -g ibv_rc_pingpong -n 300", figures=figures.pingpong),
    perftest("write-64k", "ib_write_bw, 64 KiB", "ib_write_bw", 65536, 200),
    perftest("read-64k", "ib_read_bw, 64 KiB", "ib_read_bw", 65536, 200),
    # Longer and shorter messages, and both directions, are in "speed".
    # Two of its tests run a compiler, which takes ten seconds there and shows nothing of RDMA.
    go("native-verbs", "the door to libibverbs", "native/verbs", skip="TestABI|TestOldLibrary"),
    go("emulated", "wrong keys, RNR, no answer, overrun, as when emulated", "native/verbs/verbstest", parallel=8),
    # The tests of GPUs in these two packages would compile an emulated one.
    Case("doctor", "mori doctor: every device is shown, and one is used",
         "cd core/doctor && MORI_EMULATED_GPU=none exec $BIN/core.doctor.test -test.v -test.run DoctorOnDevices",
         package="core/doctor", figures=figures.tests),
    Case("nics", "the provider's report on the devices of this host",
         "cd core/provider/verbs/nics && MORI_EMULATED_GPU=none exec $BIN/core.provider.verbs.nics.test -test.v "
         "-test.run TestReportHere", package="core/provider/verbs/nics", figures=figures.tests),
    # That nothing is allocated is the same on emulated devices, and takes a quarter of the rest's time here.
    go("provider", "core/provider/verbs, but for the suite of all providers", "core/provider/verbs",
       skip="TestFabric|TestOpsDoNotAllocate"),
    go("fabric-msg", "the suite of all providers, connected endpoints", "core/provider/verbs", "TestFabric/msg", 400),
    # What takes long and is the same for both kinds of endpoints runs once.
    go("fabric-rdm", "the suite of all providers, datagram endpoints", "core/provider/verbs", "TestFabric/rdm", 400,
       skip="TestFabric/rdm/(load|wait|scale|atomic)|TestFabric/rdm/rma/64_MiB_at_once"),
    go("io", "mori.io over RDMA devices, in Go", "io", "RDMA", 400),
    # The others need what only emulated devices tell or can be made to.
    go("shmem", "symmetric memory over RDMA devices, in Go", "shmem",
       "TestProcessesMoveBytesByNICs|TestBuffers|TestSignalComesAfter|TestQueuePairsForEachPE", 300),
    go("ep", "dispatch and combine over RDMA devices, in Go", "ep", "TestDispatchAndCombineByNICs", 300),
    Case("speed", "mori.io beside ib_write_bw and ib_read_bw, in turns", "exec $PYTHON tests/rdma/speed.py", 400,
         figures=figures.ratios),
    # Not those of how Python's words are taken, which are the same on every path.
    python("io-python", "mori.io over RDMA devices, in Python",
           "-k 'VERBS and not (gpu or class or positional or alive or unpacked or several or within)' "
           "tests/python/io/test_session.py", 400),
    Case("two-hosts", "ibv_rc_pingpong between two guests", "tests/rdma/pair -g ibv_rc_pingpong -n 100", nodes=2,
         figures=figures.pingpong),
    hosts("io-hosts", "mori.io between two guests", "transfer"),
    hosts("io-loss", "the same while 2 % of the packets are lost", "loss"),
    hosts("io-nic-down", "two NICs, one taken down in mid-transfer", "nic-down"),
    hosts("io-killed", "a peer killed in mid-transfer", "killed"),
    hosts("io-deaf", "no packet reaches the peer any more, and the send queue is full", "deaf"),
    hosts("io-address", "a network interface loses the address that RDMA uses, in mid-transfer", "address"),
    Case("shmem-hosts", "symmetric memory, dispatch and combine between two guests",
         "exec $PYTHON tests/rdma/shmem_hosts.py", 300, nodes=2),
)
