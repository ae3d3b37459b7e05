# SPDX-License-Identifier: MIT
"""`mori demo interchange`: a kernel on one GPU writes to another's by a NIC that it drives.

It takes the eight steps of an RDMA program. The emulated NIC, or a proxy of the host over another
network, can replace the NIC; threads of the CPU can replace the GPU.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from .. import _core, _errors
from .._bench.process import Local, Remote, RemoteError
from .._bench.report import GREEN, RED, colour

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
    for name, least, most in (("bytes", 1, 1 << 40), ("rounds", 1, 1 << 62), ("value", 0, 255)):
        if not least <= getattr(args, name) <= most:
            parser.error(f"--{name} must be {least} to {most}, got {getattr(args, name)}")
    if args.limit <= 0:
        parser.error(f"--limit must be more than 0, got {args.limit}")
    gpus = (args.gpu or _gpu_here()).split(",")
    if len(gpus) > len(_RANKS):
        parser.error(f"--gpu names {len(gpus)} GPUs, want one for both sides or one for each: {args.gpu}")
    try:  # after a failure the end of the process releases everything
        sender = Local(Side(args.device, gpus[0], args.limit))
        if args.processes == 1:
            return _steps(args, [sender, Local(Side(args.device, gpus[-1], args.limit))])
        with Remote("receiver", Side, args.device, gpus[-1], args.limit) as receiver:
            receiver.timeout = args.limit * args.rounds + _SLACK_S
            return _steps(args, [sender, receiver])
    except (_errors.MoriError, RemoteError) as err:
        print(f"mori demo interchange: {err}", file=sys.stderr)
        return 1


def _gpu_here() -> str:
    from .. import device

    found = device.devices()
    return f"{found[0].api.lower()}:{found[0].ordinal}" if found else "cpu"


def _steps(args: argparse.Namespace, sides: list[Local | Remote]) -> int:
    def both(method: str, *arguments: object) -> list[Any]:
        return [side.call(method, *arguments) for side in sides]

    where = zip(_RANKS, both("native", "InterchangeGPU"), strict=True)
    _say(f"GPU data interchange over {args.device}: {' to '.join(f'{rank} on {gpu}' for rank, gpu in where)}")

    _say("\nStep 1: RDMA context")
    found = both("facts", "InterchangeDiscover")
    _each(f"shows {', '.join(device['name'] for device in devices)}" for devices in found)

    _say("\nStep 2: devices and ports")
    for device in found[0]:
        _say(f"  {device['name']}")
        for port in device["ports"]:
            _say(f"    port {port}")

    _say("\nStep 3: device contexts")
    _each(both("native", "InterchangeDevice"))

    _say("\nStep 4: endpoints")
    ends = both("facts", "InterchangeEndpoint")
    _each(f"QP number {end['qpn']:#x}" for end in ends)

    _say("\nStep 5: connection, both ways")
    for side, end in zip(sides, reversed(ends), strict=True):
        side.call("native", "InterchangeConnect", end["address"])
    _each(f"QP {a['qpn']:#x} is connected to QP {b['qpn']:#x}" for a, b in (ends, ends[::-1]))

    _say("\nStep 6: GPU buffers, registered")
    buffers = both("facts", "InterchangeRegister", args.bytes)
    for side, buffer in zip(sides, reversed(buffers), strict=True):
        side.call("native", "InterchangeMeet", buffer["shown"])
    _each(f"{buffer['bytes']} bytes at {buffer['addr']:#x}, {buffer['keys']}" for buffer in buffers)

    _say("\nStep 7: the kernel fills its buffer, posts the write, rings the doorbell and polls for the completion")
    # The receiver's kernel, if any, checks each round while the sender sends the next.
    for side, sends in zip(reversed(sides), (False, True), strict=True):
        side.call("start", sends, args.value, args.rounds)
    for rank, outcome in zip(_RANKS, both("outcome"), strict=True):
        if outcome["kernel"]:
            each = outcome["ns"] / outcome["rounds"] / 1000
            _say(f"  {rank}: {outcome['kernel']}, {outcome['rounds']} rounds, {each:.1f} µs each")

    _say("\nStep 8: verification on the receiving GPU, and clean-up")
    wrong = sides[1].call("verify", args.value)
    _say(verdict(args.bytes, args.value, wrong))
    both("native", "InterchangeClose")
    if wrong:
        return 1
    _say("\n=== Example completed successfully! ===")
    return 0


def verdict(nbytes: int, value: int, wrong: int) -> str:
    """Return the line with the result. With several rounds a byte may be wrong more than once."""
    if wrong:
        return colour(f"WRONG BYTES: {wrong} of {nbytes} are not {value}", RED)
    return colour(f"Success! All {nbytes} bytes verified with value {value}", GREEN)


def _each(lines: Any) -> None:
    for rank, line in zip(_RANKS, lines, strict=True):
        _say(f"  {rank}: {line}")


def _say(line: str) -> None:
    print(line, flush=True)


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
    gpus = "cpu, cuda:N or hip:N, of both sides or of each (default: the first there is)"
    add("--gpu", metavar="GPU[,GPU]", help=gpus)
    add("--bytes", type=int, default=1024, metavar="N", help="to send (default 1024)")
    add("--value", type=int, default=42, metavar="BYTE", help="of each byte (default 42)")
    add("--rounds", type=int, default=1, metavar="N", help="by one kernel (default 1)")
    add("--processes", type=int, choices=[1, 2], default=1, help="that the two sides are in (default 1)")
    add("--limit", type=float, default=30.0, metavar="S", help="seconds that any wait may last (default 30)")
    return parser
