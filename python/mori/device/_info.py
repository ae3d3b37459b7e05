# SPDX-License-Identifier: MIT
"""Which GPUs there are, what they reach, and what an address is."""

from __future__ import annotations

import dataclasses
import json
import operator
from typing import Any, Literal, NamedTuple

from .. import _core
from .._errors import InvalidArgumentError


@dataclasses.dataclass(frozen=True)
class DeviceInfo:
    """What the driver reports about a GPU. It does not change.

    Attributes:
        device: its number here: the place in :func:`devices`.
        api: ``"CUDA"`` or ``"HIP"``.
        ordinal: its number among the GPUs of its vendor that this process may see.
        name: as the vendor sells it.
        uuid: as the vendor's tools write it.
        bus_id: on PCI, in lower case, as the folders of ``/sys/bus/pci/devices`` are called.
        arch: what code for it is compiled for: ``"sm_90"``, ``"gfx942"``.
        capability: CUDA's compute capability, ``(9, 0)``, or the two numbers that HIP gives.
        bytes: of memory.
        units: multiprocessors (compute units).
        warp: threads that run in step: 32 or 64.
        driver: the driver's version, as the vendor numbers it: 12080 is CUDA 12.8.
        copy_engines: copies beside each other and beside kernels.
        dma_buf: memory can be given to other drivers as a descriptor.
        rdma: NICs can be let at its memory.
        vmm: addresses and memory can be made apart.
        vmm_fd: such memory goes to other processes of the host, as a descriptor.
        vmm_fabric: such memory goes to other hosts of one NVLink domain.
        host_atomics: atomics on host memory are the link's own.
        shares_memory: its memory is the host's.
    """

    device: int
    api: Literal["CUDA", "HIP"]
    ordinal: int
    name: str
    uuid: str
    bus_id: str
    arch: str
    capability: tuple[int, int]
    bytes: int
    units: int
    warp: int
    driver: int
    copy_engines: int
    dma_buf: bool
    rdma: bool
    vmm: bool
    vmm_fd: bool
    vmm_fabric: bool
    host_atomics: bool
    shares_memory: bool


class MemoryInfo(NamedTuple):
    """Bytes of a GPU's memory."""

    free: int
    total: int


class Reach(NamedTuple):
    """What a GPU can do to the memory of another.

    Attributes:
        access: its kernels load and store there, and copies go straight.
        atomics: atomics on it are the link's own.
        link: ``"NVLink"``, ``"xGMI"``, ``"PCIe"``; empty without access, and for the GPU itself.
    """

    access: bool
    atomics: bool
    link: str


class Pointer(NamedTuple):
    """What the drivers know about an address.

    Attributes:
        kind: ``"device"``, ``"pinned host"``, ``"managed"``, or ``"host"`` for what no driver knows: ordinary memory,
            or none.
        device: the number of the GPU that it is of, -1 for none.
        api: that GPU's vendor, ``"CUDA"`` or ``"HIP"``; empty for none.
        ordinal: that GPU's number among those of its vendor, -1 for none.
        base: where the allocation around it begins, 0 if that is not known.
        nbytes: the size of that allocation.
        device_ptr: its address for GPUs, 0 if they do not reach it.
        host_ptr: its address for the host, 0 if it does not reach it.
    """

    kind: Literal["device", "pinned host", "managed", "host"]
    device: int
    api: Literal["CUDA", "HIP", ""]
    ordinal: int
    base: int
    nbytes: int
    device_ptr: int
    host_ptr: int


def devices() -> list[DeviceInfo]:
    """Return the GPUs that this process sees, or an empty list: :func:`why_no_device` says why."""
    return [_info(number, told) for number, told in enumerate(_listing()["devices"])]


def why_no_device() -> str:
    """Return why :func:`devices` is empty, in the words of the drivers; empty if it is not."""
    why: str = _listing()["why"]
    return why


def memory_info(device: int = 0) -> MemoryInfo:
    """Return how much memory of a GPU is free, and how much it has.

    Raises:
        InvalidArgumentError: there is no GPU with that number.
        UnsupportedError: there is no GPU.
    """
    return MemoryInfo(*json.loads(_core.call("DeviceMemInfo", device_number(device))))


def reach(device: int, peer: int) -> Reach:
    """Return how one GPU reaches the memory of another; itself it reaches.

    Raises:
        InvalidArgumentError: there is no GPU with that number.
        UnsupportedError: there is no GPU.
    """
    told = json.loads(_core.call("DeviceReach", device_number(device), device_number(peer)))
    return Reach(told["access"], told["atomics"], told["link"])


def enable_peer(device: int, peer: int) -> None:
    """Let kernels and copies of one GPU use all memory of another directly. It may be repeated, and is not undone.

    Copies between GPUs need it only to be fast.

    Raises:
        UnsupportedError: they do not reach each other, or there is no GPU.
        InvalidArgumentError: there is no GPU with that number.
    """
    _core.call("DeviceEnablePeer", device_number(device), device_number(peer))


def lookup(ptr: int) -> Pointer:
    """Return what the drivers know about an address of this process; without any, that it is the host's."""
    return Pointer(**json.loads(_core.call("DeviceLookup", uint64(ptr, "ptr"))))


def device_number(device: Any) -> int:
    """Return ``device`` as a number that native code takes; it checks whether there is such a GPU."""
    number = operator.index(device)
    if not 0 <= number < 2**31:
        raise InvalidArgumentError(f"GPU {device!r} does not exist: GPUs are numbered from 0")
    return number


def uint64(value: Any, what: str) -> int:
    """Return ``value`` as an int of 64 bits; the native side does not check ranges."""
    number = operator.index(value)
    if not 0 <= number < 2**64:
        raise InvalidArgumentError(f"{what} must be 0 to 2**64-1, got {value!r}")
    return number


def _listing() -> dict[str, Any]:
    listing: dict[str, Any] = json.loads(_core.call("DeviceList"))
    return listing


def _info(number: int, told: dict[str, Any]) -> DeviceInfo:
    told = {**told, "device": number, "capability": tuple(told["capability"])}
    return DeviceInfo(**{field.name: told[field.name] for field in dataclasses.fields(DeviceInfo)})
