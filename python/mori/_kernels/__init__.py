# SPDX-License-Identifier: MIT
"""GPU kernels as data: compiled from native/kernels by ``make kernels``, loaded by the GPU's driver.

A file is named <layer>_<kernel>.<architecture>.<format>. PTX (.ptx) of an architecture runs on every later NVIDIA GPU;
a code object (.hsaco) runs on its AMD GPU alone; bitcode (.bc) is linked with other kernels, such as Triton's.
manifest.json has the digests of the sources and of the products.
"""

from __future__ import annotations

from pathlib import Path

DIRECTORY = Path(__file__).resolve().parent
