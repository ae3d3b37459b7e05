# SPDX-License-Identifier: MIT
"""Names the machine beside the figures that were measured on it."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Machine:
    """What a reader needs to compare two runs."""

    cpu: str
    cores: int
    memory_gib: float
    kernel: str
    python: str

    def __str__(self) -> str:
        return f"{self.cpu}, {self.cores} cores, {self.memory_gib:.0f} GiB, Linux {self.kernel}, Python {self.python}"

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def this_machine() -> Machine:
    pages, page = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return Machine(
        cpu=_cpu_model(),
        cores=len(os.sched_getaffinity(0)),
        memory_gib=round(pages * page / 2**30, 1),
        kernel=platform.release(),
        python=platform.python_version(),
    )


def _cpu_model() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as info:
            for line in info:
                if line.startswith(("model name", "Model")):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine()
