# SPDX-License-Identifier: MIT
"""`mori demo interchange`: a kernel on one GPU writes to another's by a NIC that it drives.

It takes the eight steps of an RDMA program. The emulated NIC, or a proxy of the host over another
network, can replace the NIC; threads of the CPU can replace the GPU.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from typing import Any

from .. import _core, _errors, device
from .._bench import report
from .._bench.arguments import number
from .._bench.process import Local, Remote, RemoteError, Services

# Added to the limit of a kernel's wait: time to start a process and to load a kernel.
_SLACK_S = 60.0
_RANKS = ("sender", "receiver")


class Side:
    """A side in this process. The sides exchange the text that the native side returns."""

    def __init__(self, device: str, gpu: str, limit: float) -> None:
        self._id: int = _core.call("InterchangeOpen", device, gpu, limit)
        self._job = 0

    def native(self, name: str, *args: object) -> Any:
        """Call an entry point of the extension for this side."""
        return _core.call(name, self._id, *args)

    def facts(self, name: str, *args: object) -> Any:
        """Return what an entry point returns as JSON."""
        return json.loads(self.native(name, *args))

    def start(self, send: bool, value: int, rounds: int) -> None:
        """Start the kernel; :meth:`outcome` waits for it."""
        self._job = self.native("InterchangeRun", send, value, rounds)

    def outcome(self) -> Any:
        _core.finish(self._job)
        return self.facts("InterchangeOutcome")

    def verify(self, value: int) -> int:
        """Count the bytes of this side's buffer that differ from the value."""
        return _core.run("InterchangeVerify", self._id, value)


def main(argv: list[str]) -> int:
    """Return 0 if every byte is right, 1 if not or if the run failed, 2 for bad arguments."""
    parser = _parser()
    args = parser.parse_args(argv)
    gpus = (args.gpu or _gpu_here()).split(",")
    if len(gpus) > len(_RANKS):
        parser.error(f"--gpu names {len(gpus)} GPUs, want one for both sides or one for each: {args.gpu}")
    try:  # after a failure the end of the process releases everything
        sender = Local(Side(args.device, gpus[0], args.limit))
        if args.processes == 1:
            return _steps(args, Services(sender, Local(Side(args.device, gpus[-1], args.limit))))
        with Remote("receiver", Side, args.device, gpus[-1], args.limit) as receiver:
            receiver.timeout = args.limit * args.rounds + _SLACK_S
            return _steps(args, Services(sender, receiver))
    except (_errors.MoriError, RemoteError) as err:
        print(f"mori demo interchange: {err}", file=sys.stderr)
        return 1


def _gpu_here() -> str:
    found = device.devices()
    return f"{found[0].api.lower()}:{found[0].ordinal}" if found else "cpu"


def _steps(args: argparse.Namespace, sides: Services) -> int:
    both = sides.each
    where = zip(_RANKS, both("native", "InterchangeGPU"), strict=True)
    _say(f"GPU data interchange over {args.device}: {' to '.join(f'{rank} on {gpu}' for rank, gpu in where)}")
    found = both("facts", "InterchangeDiscover")
    _say("\nStep 1: RDMA context", (f"shows {', '.join(one['name'] for one in devices)}" for devices in found))
    _say("\nStep 2: devices and ports")
    for one in found[0]:
        _say("\n    port ".join([f"  {one['name']}", *one["ports"]]))
    _say("\nStep 3: device contexts", both("native", "InterchangeDevice"))
    ends = both("facts", "InterchangeEndpoint")
    _say("\nStep 4: endpoints", (f"QP number {end['qpn']:#x}" for end in ends))
    for side, end in enumerate(reversed(ends)):
        sides.one(side, "native", "InterchangeConnect", end["address"])
    pairs = ((end["qpn"], other["qpn"]) for end, other in (ends, ends[::-1]))
    _say("\nStep 5: connection, both ways", (f"QP {a:#x} is connected to QP {b:#x}" for a, b in pairs))
    buffers = both("facts", "InterchangeRegister", args.bytes)
    for side, buffer in enumerate(reversed(buffers)):
        sides.one(side, "native", "InterchangeSetPeer", buffer["shown"])
    lines = (f"{buffer['bytes']} bytes at {buffer['addr']:#x}, {buffer['keys']}" for buffer in buffers)
    _say("\nStep 6: GPU buffers, registered", lines)
    _say("\nStep 7: the kernel fills its buffer, posts the write, rings the doorbell and polls for the completion")
    # The receiver's kernel, if any, checks each round while the sender sends the next.
    for side, sends in ((1, False), (0, True)):
        sides.one(side, "start", sends, args.value, args.rounds)
    for rank, outcome in zip(_RANKS, both("outcome"), strict=True):
        if outcome["kernel"]:
            each = outcome["ns"] / outcome["rounds"] / 1000
            _say(f"  {rank}: {outcome['kernel']}, {outcome['rounds']} rounds, {each:.1f} µs each")
    _say("\nStep 8: verification on the receiving GPU, and clean-up")
    wrong = sides.one(1, "verify", args.value)
    _say(verdict(args.bytes, args.value, wrong))
    both("native", "InterchangeClose")
    if wrong:
        return 1
    _say("\n=== Example completed successfully! ===")
    return 0


def verdict(nbytes: int, value: int, wrong: int) -> str:
    """Return the line with the result. With several rounds a byte may be wrong more than once."""
    good = f"Success! All {nbytes} bytes verified with value {value}"
    return report.verdict(not wrong, good, f"WRONG BYTES: {wrong} of {nbytes} are not {value}")


def _say(title: str, lines: Iterable[str] = ()) -> None:
    """Print a line, and one of each side."""
    print("\n".join([title, *(f"  {rank}: {line}" for rank, line in zip(_RANKS, lines, strict=False))]), flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mori demo interchange",
        description="A kernel on one GPU fills a buffer and writes it to another's, by a NIC that the kernel drives "
        "itself or by a proxy of the host; the other GPU checks every byte.",
    )
    add = parser.add_argument
    devices = (
        "emu0, an emulated NIC with mlx5 queues (default); emu0:bnxt, emu0:ionic1 or emu0:ionic2, one with "
        "another vendor's queues; proxy or proxy:PROVIDER, a host thread that posts to shm, tcp, verbs; "
        "or an RDMA device's name"
    )
    add("--device", default="emu0", metavar="NAME", help=devices)
    gpus = "cpu, cuda:N or hip:N, for both sides or for each (default: the first GPU)"
    add("--gpu", metavar="GPU[,GPU]", help=gpus)
    number(parser, "--bytes", 1024, "to send", most=1 << 40)
    number(parser, "--value", 42, "value of each byte", least=0, most=255, metavar="BYTE")
    number(parser, "--rounds", 1, "by one kernel", most=1 << 62)
    add("--processes", type=int, choices=[1, 2], default=1, help="that the two sides are in (default 1)")
    number(parser, "--limit", 30.0, "time limit of each wait in seconds (default 30)", 1e-3, type=float, metavar="S")
    return parser
