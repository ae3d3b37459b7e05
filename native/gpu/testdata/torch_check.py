# SPDX-License-Identifier: MIT
"""The calls of gpu.h in a process where PyTorch works: torch_check.py LIBRARY PTX.

LIBRARY has the C files of native/gpu. Both sides work in one primary context, see each other's memory and streams, and
PyTorch's current device and context stay what they are.
"""

import ctypes
import sys
import threading

import torch


class Rc(ctypes.Structure):
    """struct gpu_rc."""

    _fields_ = (("call", ctypes.c_char_p), ("code", ctypes.c_int))


class Pointer(ctypes.Structure):
    """struct gpu_pointer."""

    _fields_ = (
        *((name, ctypes.c_uint64) for name in ("base", "bytes", "device_addr", "host_addr")),
        ("kind", ctypes.c_int32),
        ("device", ctypes.c_int32),
        ("can", ctypes.c_uint32),
    )


class Grid(ctypes.Structure):
    """struct gpu_grid."""

    _fields_ = (("grid", ctypes.c_uint32 * 3), ("block", ctypes.c_uint32 * 3), ("shared", ctypes.c_uint32))


class Args(ctypes.Structure):
    """The parameters of kernel fill."""

    _fields_ = (("addr", ctypes.c_uint64), ("n", ctypes.c_uint32), ("value", ctypes.c_uint32))


class Gpu:
    """A loaded driver, and a check after each call that PyTorch's thread is as it was."""

    def __init__(self, path: str) -> None:
        self.lib = ctypes.CDLL(path)
        self.api = ctypes.c_void_p()
        why = ctypes.create_string_buffer(512)
        if self.lib.gpu_open(1, None, ctypes.byref(self.api), why, ctypes.c_size_t(512)):
            raise SystemExit(why.value.decode())

    def raw(self, name: str, *args: object) -> Rc:
        """Make one call."""
        call = getattr(self.lib, "gpu_" + name)
        call.restype = Rc
        rc: Rc = call(self.api, *args)
        return rc

    def current(self) -> int:
        """Return the current context of this thread."""
        now = ctypes.c_uint64()
        assert self.raw("current", ctypes.byref(now)).code == 0
        return now.value

    def __call__(self, name: str, *args: object, code: int = 0) -> None:
        """Make one call that answers code."""
        before = self.current(), torch.cuda.current_device()
        rc = self.raw(name, *args)
        assert rc.code == code, f"{rc.call} answers {rc.code}"
        after = self.current(), torch.cuda.current_device()
        assert before == after, f"{name}: {before} before, {after} after"


U64 = ctypes.c_uint64


def memory(gpu: Gpu, device: int) -> None:
    """Write PyTorch's memory from here, on PyTorch's stream, and read it there."""
    x = torch.zeros(1 << 20, dtype=torch.int32, device=f"cuda:{device}")
    y = torch.arange(1 << 20, dtype=torch.int32, device=f"cuda:{device}")
    stream = torch.cuda.Stream(device=device)
    stream.wait_stream(torch.cuda.current_stream(device))
    handle, n = U64(stream.cuda_stream), x.numel() * 4
    ours = U64()
    gpu("alloc", device, U64(n), ctypes.byref(ours))
    gpu("copy", device, ours, U64(y.data_ptr()), U64(n), handle)
    gpu("copy", device, U64(x.data_ptr()), ours, U64(n), handle)
    stream.synchronize()
    assert torch.equal(x, y)
    gpu("set", device, U64(x.data_ptr()), 1, U64(n), handle)
    stream.synchronize()
    assert bool((x == 0x01010101).all())
    gpu("alloc", device, U64(1 << 50), ctypes.byref(U64()), code=2)
    p = Pointer()
    gpu("pointer", U64(x.data_ptr() + 64), ctypes.byref(p))
    assert (p.kind, p.device) == (2, device)
    assert p.base <= x.data_ptr() < p.base + p.bytes, (p.base, p.bytes)
    assert p.can & 1, "PyTorch's memory has no IPC handle"
    gpu("ipc_get", device, U64(p.base), ctypes.create_string_buffer(64))
    gpu("free", device, ours)
    torch.cuda.synchronize(device)


def launch(gpu: Gpu, device: int, ptx: bytes) -> None:
    """Launch a kernel between two of PyTorch's, on its stream."""
    module, function, log = U64(), U64(), ctypes.create_string_buffer(2048)
    gpu("module_load", device, ptx, ctypes.byref(module), log, ctypes.c_size_t(2048))
    gpu("module_function", device, module, b"fill", ctypes.byref(function))
    with torch.cuda.device(device):
        x = torch.zeros(4096, dtype=torch.int32, device="cuda")
        x += 1
        args = Args(x.data_ptr(), 2048, 41)
        grid = Grid((8, 1, 1), (128, 1, 1), 0)
        stream = U64(torch.cuda.current_stream().cuda_stream)
        gpu("launch", device, function, ctypes.byref(grid), stream, ctypes.byref(args), ctypes.c_size_t(16))
        x += 1
        assert x[[0, 2047, 2048]].tolist() == [42, 42, 2]
    gpu("module_unload", device, module)


def thread_without_context(gpu: Gpu, device: int) -> None:
    """A thread with nothing current has nothing current afterwards."""
    seen: list[int] = []

    def body() -> None:
        seen.append(gpu.current())
        ours = U64()
        seen.append(gpu.raw("alloc", device, U64(4096), ctypes.byref(ours)).code)
        seen.append(gpu.raw("free", device, ours).code)
        seen.append(gpu.current())

    t = threading.Thread(target=body)
    t.start()
    t.join()
    assert seen == [0, 0, 0, 0], seen


def main() -> None:
    """Check all devices, with each of them PyTorch's current one."""
    gpu = Gpu(sys.argv[1])
    with open(sys.argv[2], "rb") as f:
        ptx = f.read()
    count = torch.cuda.device_count()
    for mine in range(count):
        torch.cuda.set_device(mine)
        torch.ones(1, device="cuda").sum().item()
        for device in range(count):
            torch.ones(1, device=f"cuda:{device}").sum().item()
            before = torch.cuda.mem_get_info(device)[0]
            free, total = U64(), U64()
            gpu("mem_info", device, ctypes.byref(free), ctypes.byref(total))
            assert before - torch.cuda.mem_get_info(device)[0] < 64 << 20, "a second context was made"
            memory(gpu, device)
            launch(gpu, device, ptx)
            thread_without_context(gpu, device)
            assert torch.cuda.current_device() == mine
    print(f"torch {torch.__version__} and gpu.h share the contexts of {count} devices")


main()
