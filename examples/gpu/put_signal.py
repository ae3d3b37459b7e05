# SPDX-License-Identifier: MIT
"""Run the kernel of put_signal.cu on symmetric memory, one PE a process, and check its results.

    torchrun --nproc-per-node 2 examples/gpu/put_signal.py put_signal.ptx

The head of put_signal.cu says how to make put_signal.ptx, or put_signal.hsaco for AMD. If there are
fewer GPUs than PEs, PEs share them. The program needs neither torch nor a vendor toolkit. mpirun
and srun can start it, too.
"""

import argparse
import array
import ctypes
import os
import sys
from pathlib import Path

from mori import device, shmem

THREADS = 256


class Driver:
    """The few calls of the CUDA or HIP driver that load and launch a kernel."""

    def __init__(self, gpu: device.DeviceInfo) -> None:
        self.hip = gpu.api == "HIP"
        self.library = ctypes.CDLL("libamdhip64.so" if self.hip else "libcuda.so.1")
        if self.hip:
            self.call("hipSetDevice", gpu.ordinal)
        else:
            number, context = ctypes.c_int(), ctypes.c_void_p()
            self.call("cuInit", 0)
            self.call("cuDeviceGet", ctypes.byref(number), gpu.ordinal)
            self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), number)
            self.call("cuCtxPushCurrent_v2", context)

    def call(self, name: str, *args: object) -> None:
        status = getattr(self.library, name)(*args)
        if status != 0:
            sys.exit(f"{name}: error {status} of the driver")

    def load(self, path: Path) -> ctypes.c_void_p:
        module = ctypes.c_void_p()
        load = "hipModuleLoadDataEx" if self.hip else "cuModuleLoadDataEx"
        self.call(load, ctypes.byref(module), path.read_bytes() + b"\0", 0, None, None)
        return module

    def function(self, module: ctypes.c_void_p, name: str) -> ctypes.c_void_p:
        found = ctypes.c_void_p()
        get = "hipModuleGetFunction" if self.hip else "cuModuleGetFunction"
        self.call(get, ctypes.byref(found), module, name.encode())
        return found

    def launch(self, function: ctypes.c_void_p, threads: int, stream: int, *words: int) -> None:
        """One block; every argument of the kernel is a word of 8 bytes."""
        packed, size = (ctypes.c_uint64 * len(words))(*words), ctypes.c_size_t(8 * len(words))
        end = 3 if self.hip else 0  # LAUNCH_PARAM_END; 1 is _BUFFER_POINTER, 2 _BUFFER_SIZE
        extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(packed), 2, ctypes.addressof(size), end)
        name = "hipModuleLaunchKernel" if self.hip else "cuLaunchKernel"
        self.call(name, function, 1, 1, 1, threads, 1, 1, 0, ctypes.c_void_p(stream), None, extra)


def numbers(pe: int, turn: int, count: int) -> array.array:
    """The numbers that a PE sends in a turn."""
    return array.array("f", ((pe * 1000 + turn * 10 + i) % 4096 for i in range(count)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("code", type=Path, help="put_signal.ptx or put_signal.hsaco")
    parser.add_argument("--count", type=int, default=100_000, help="floats a turn")
    parser.add_argument("--turns", type=int, default=10)
    args = parser.parse_args()
    gpus = device.devices()
    if not gpus:
        sys.exit(f"no GPU: {device.why_no_device()}")
    place = int(os.environ.get("LOCAL_RANK") or os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK") or 0) % len(gpus)
    driver = Driver(gpus[place])  # its context holds this PE's symmetric memory
    os.environ["MORI_SHMEM_DEVICE"] = "gpu"
    shmem.shmem_init()
    pe, npes = shmem.shmem_mype(), shmem.shmem_npes()

    module = driver.load(args.code)
    if shmem.shmem_module_init(module.value) != 0:
        sys.exit("the module has no symmetric memory: was it compiled with mori/shmem/device.hpp?")
    pass_on = driver.function(module, "pass_on")

    nbytes = 4 * args.count
    target, source = shmem.shmem_malloc(2 * nbytes), shmem.shmem_malloc(nbytes)
    signal = shmem.shmem_malloc(8)  # symmetric memory is zero at first
    stream = device.Stream(place)
    shmem.shmem_barrier_all()
    for turn in range(1, args.turns + 1):
        mine, came = numbers(pe, turn, args.count), array.array("f", bytes(2 * nbytes))
        device.copy(source, mine.buffer_info()[0], nbytes)
        driver.launch(pass_on, THREADS, stream.cuda_stream, target, source, args.count, signal, turn)
        stream.wait(30)
        device.copy(came.buffer_info()[0], target, 2 * nbytes)
        wanted = numbers((pe - 1) % npes, turn, args.count)
        if came[: args.count] != wanted or came[args.count :] != array.array("f", (2 * x for x in wanted)):
            sys.exit(f"PE {pe}, turn {turn}: not what PE {(pe - 1) % npes} has put")
        shmem.shmem_barrier_all()  # all have checked this turn's data, so the next may arrive
    stream.close()
    shmem.shmem_barrier_all()
    if pe == 0:
        where = f"{min(npes, len(gpus))} x {gpus[0].name}"
        print(f"{npes} PEs on {where}: {args.turns} turns of {args.count} floats are right")
    shmem.shmem_finalize()


if __name__ == "__main__":
    main()
