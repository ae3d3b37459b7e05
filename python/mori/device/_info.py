# SPDX-License-Identifier: MIT
"""The list of GPUs, peer access between them, and information about addresses."""

from __future__ import annotations

import dataclasses
import json
import operator
from typing import Any, Literal, NamedTuple

from .. import _core
from .._errors import InvalidArgumentError


@dataclasses.dataclass(frozen=True)
class DeviceInfo:
    """Static properties of a GPU, as the driver reports them.

    Attributes:
        device: its number here: the index in :func:`devices`.
        api: ``"CUDA"`` or ``"HIP"``.
        ordinal: its number among the visible GPUs of its vendor.
        name: product name.
        uuid: UUID in the format of the vendor's tools.
        bus_id: PCI address in lower case, as in ``/sys/bus/pci/devices``.
        arch: compilation target: ``"sm_90"``, ``"gfx942"``.
        capability: CUDA's compute capability, ``(9, 0)``, or the two numbers that HIP reports.
        bytes: size of its memory.
        units: number of multiprocessors (compute units).
        warp: threads in a warp (wavefront): 32 or 64.
        driver: the driver's version in the vendor's numbering: 12080 is CUDA 12.8.
        copy_engines: number of copies that can run concurrently, also with kernels.
        dma_buf: its memory can be exported as a DMA-BUF descriptor.
        rdma: NICs can access its memory.
        vmm: the driver has virtual memory management, with addresses and memory allocated
            separately.
        vmm_fd: VMM memory can be shared with other processes of the host as a file descriptor.
        vmm_fabric: VMM memory can be shared with other hosts of one NVLink domain.
        host_atomics: the link supports native atomics on host memory.
        shares_memory: it uses the host's memory.
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
    """Peer access of one GPU to another's memory.

    Attributes:
        access: its kernels can load and store there, and copies are direct.
        atomics: the link supports native atomics there.
        link: ``"NVLink"``, ``"xGMI"``, ``"PCIe"``; empty without access, and for the GPU itself.
    """

    access: bool
    atomics: bool
    link: str


class Pointer(NamedTuple):
    """What the drivers know about an address.

    Attributes:
        kind: ``"device"``, ``"pinned host"``, ``"managed"``, or ``"host"`` if no driver knows it:
            ordinary or unmapped memory.
        device: number of its GPU, -1 for none.
        api: that GPU's API, ``"CUDA"`` or ``"HIP"``; empty for none.
        ordinal: that GPU's number among those of its vendor, -1 for none.
        base: start of the allocation that contains it, 0 if unknown.
        nbytes: size of that allocation.
        device_ptr: its address for GPUs, 0 if they cannot access it.
        host_ptr: its address for the host, 0 if the host cannot access it.
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
    """Return the visible GPUs. If the list is empty, :func:`why_no_device` returns the reason."""
    return [_info(number, told) for number, told in enumerate(_listing()["devices"])]


def why_no_device() -> str:
    """Return the drivers' reason why :func:`devices` is empty; an empty string if it is not."""
    why: str = _listing()["why"]
    return why


def memory_info(device: int = 0) -> MemoryInfo:
    """Return the free and total memory of a GPU in bytes.

    Raises:
        InvalidArgumentError: no GPU has that number.
        UnsupportedError: there is no GPU.
    """
    return MemoryInfo(*json.loads(_core.call("DeviceMemInfo", device_number(device))))


def reach(device: int, peer: int) -> Reach:
    """Return the access of GPU ``device`` to the memory of ``peer``, which may be the same GPU.

    Raises:
        InvalidArgumentError: there is no GPU with that number.
        UnsupportedError: there is no GPU.
    """
    told = json.loads(_core.call("DeviceReach", device_number(device), device_number(peer)))
    return Reach(told["access"], told["atomics"], told["link"])


def enable_peer(device: int, peer: int) -> None:
    """Enable direct access of one GPU's kernels and copies to all memory of another.

    It may be repeated and cannot be undone. Copies between GPUs also work without it, but more
    slowly.

    Raises:
        UnsupportedError: the GPUs cannot access each other, or there is no GPU.
        InvalidArgumentError: there is no GPU with that number.
    """
    _core.call("DeviceEnablePeer", device_number(device), device_number(peer))


def lookup(ptr: int) -> Pointer:
    """Return what the drivers know about an address of this process.

    If no driver is loaded, it is reported as host memory.
    """
    return Pointer(**json.loads(_core.call("DeviceLookup", uint64(ptr, "ptr"))))


def device_number(device: Any) -> int:
    """Return ``device`` as an int for native code, which checks that the GPU exists."""
    number = operator.index(device)
    if not 0 <= number < 2**31:
        raise InvalidArgumentError(f"GPU {device!r} does not exist: GPUs are numbered from 0")
    return number


def uint64(value: Any, what: str) -> int:
    """Return ``value`` as a 64-bit int; raise if out of range, which native code does not check."""
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
