# SPDX-License-Identifier: MIT
"""Where cases run: on this host's own RDMA devices, or in guests that have soft-RoCE."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cases import Case

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
NODE = HERE / "node"
VM = HERE / "vm" / "rdma-vm"
# What a guest takes to come up on a busy machine without KVM, with room to spare.
BOOT_SECONDS = 180
GUEST_MIB = 2048
# Of the guests' network: RDMA packets of 4096 bytes, which take half the time of those of 1024.
MTU = 4200


class Place(ABC):
    """Runs node somewhere; its standard output comes line by line."""

    name: str

    @abstractmethod
    def why_not(self, case: Case) -> str:
        """Return why a case cannot run here, or nothing."""

    @abstractmethod
    def start(self, out: Path, cases: list[Case], env: dict[str, str]) -> subprocess.Popen[str]:
        """Run the cases that are listed in ``out``."""

    @contextmanager
    def lines(self, out: Path, cases: list[Case], env: dict[str, str]) -> Iterator[Iterator[str]]:
        """Yield node's output until it ends. If the caller stops first, node is killed."""
        with self.start(out, cases, env) as process:
            try:
                assert process.stdout is not None
                yield iter(process.stdout)
            finally:
                process.terminate()


class Guests(Place):
    """Virtual machines, one or two, with two devices each."""

    name = "VM"

    def why_not(self, case: Case) -> str:
        return ""

    def start(self, out: Path, cases: list[Case], env: dict[str, str]) -> subprocess.Popen[str]:
        nodes = cases[0].nodes
        limit = BOOT_SECONDS + sum(case.limit + 10 for case in cases)
        env = {**env, "MORI_REQUIRE": "rdma", "ADDR0": "198.18.0.10", "GID0": "1", "GID1": "1",
               "DEV0": "rxe0", "DEV1": "rxe0" if nodes > 1 else "rxe1"}
        words = [VM, "run", "--nodes", nodes, "--devs", 2, "--mtu", MTU, "--mem", GUEST_MIB, "--rw", out,
                 "--timeout", f"{limit:.0f}", "--logs", out / f"vm{nodes}", "--cwd", ROOT]
        for name, value in env.items():
            words += ["--env", f"{name}={value}"]
        return subprocess.Popen([*map(str, words), "--", str(NODE), str(out)], stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, text=True, errors="replace")


class Native(Place):
    """The devices of this host. One is enough: it is then both ends."""

    name = "devices of this host"

    def __init__(self, devices: list[Path]) -> None:
        self.devices = devices

    def why_not(self, case: Case) -> str:
        if case.nodes > 1:
            return "wants two hosts"
        return "would disturb the network of this host" if case.alters else ""

    def start(self, out: Path, cases: list[Case], env: dict[str, str]) -> subprocess.Popen[str]:
        require = ",".join([*filter(None, [os.environ.get("MORI_REQUIRE")]), "rdma"])
        env = {**os.environ, **env, "MORI_REQUIRE": require, "ADDR0": "127.0.0.1"}
        for end, device in enumerate((self.devices[0], self.devices[-1])):
            env |= {f"DEV{end}": device.name, f"GID{end}": gid_index(device)}
        return subprocess.Popen([str(NODE), str(out)], cwd=ROOT, env=env, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, text=True, errors="replace")


def active_devices(sysfs: Path = Path("/sys/class/infiniband")) -> list[Path]:
    """RDMA devices whose first port is up."""
    states = sorted(sysfs.glob("*/ports/1/state"))
    return [path.parents[2] for path in states if "ACTIVE" in path.read_text()]


def gid_index(device: Path) -> str:
    """The index of a RoCE v2 GID, of IPv4 if there is one; nothing for InfiniBand, which needs none."""
    port = device / "ports" / "1"
    if (port / "link_layer").read_text().strip() != "Ethernet":
        return ""
    found = []
    for path in (port / "gid_attrs" / "types").iterdir():
        try:
            kind = path.read_text().strip()
        except OSError:  # an index without a GID
            continue
        if kind == "RoCE v2":
            is_ipv4 = ":ffff:" in (port / "gids" / path.name).read_text()
            found.append((not is_ipv4, int(path.name)))
    return str(min(found)[1]) if found else ""


def missing(place: Place) -> str:
    """What is not installed that the place needs, and how to get it."""
    if isinstance(place, Native):
        tools = [tool for tool in ("ibv_devinfo", "ib_write_bw") if not shutil.which(tool)]
        return f"not installed: {', '.join(tools)} (Debian: ibverbs-utils perftest)" if tools else ""
    if sys.platform != "linux" or os.uname().machine != "x86_64" or not shutil.which("dpkg-query"):
        return "the VM wants Debian or Ubuntu on x86-64"
    done = subprocess.run([str(VM), "check"], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode else ""


def choose(where: str) -> Place:
    """The devices of this host if it has any, else guests, unless ``where`` says which."""
    devices = active_devices()
    if where == "native" and not devices:
        sys.exit("rdma: no RDMA device with an active port on this host")
    return Native(devices) if devices and where != "vm" else Guests()
