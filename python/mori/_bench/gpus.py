# SPDX-License-Identifier: MIT
"""The GPUs that a benchmark runs on."""

from __future__ import annotations

from dataclasses import dataclass

from mori import device

from .arguments import numbers
from .harness import MIB, Unavailable

L2_BYTES = 64 * MIB


@dataclass(frozen=True)
class GPUs:
    """The numbers of the GPUs in the requested order, and their names."""

    numbers: tuple[int, ...]
    names: tuple[str, ...]

    @property
    def pair(self) -> tuple[int, int]:
        """The GPUs of the two sides of a transfer, the same one if there is no second."""
        return self.numbers[0], self.numbers[1 % len(self.numbers)]

    @property
    def emulated(self) -> bool:
        """Whether they are host memory behind the driver of the tests."""
        return any(word in name.lower() for name in self.names for word in ("emulated", "fake"))

    def how(self) -> list[str]:
        """Return lines for the heading."""
        lines = ["GPUs: " + ", ".join(f"{n} {name}" for n, name in zip(self.numbers, self.names, strict=True))]
        if len(self.numbers) == 1:
            lines.append("one GPU only: both ends are on it")
        if self.emulated:
            lines.append("EMULATED: the figures mean nothing")
        return lines

    def facts(self, used: int) -> dict[str, object]:
        """Return the fields of a result whose case needs at most `used` GPUs."""
        return {"gpus": min(used, len(self.numbers)), "device": self.names[0], "emulated": self.emulated}


def choose(text: str | None) -> GPUs:
    """Return the GPUs of a comma-separated list of numbers, or all.

    Raises ValueError for a wrong list and Unavailable without a GPU.
    """
    names = {info.device: info.name for info in device.devices()}
    if not names:
        raise Unavailable(f"there is no GPU to measure on: {device.why_no_device()}")
    wanted = list(names) if text is None else numbers("--gpus", text)
    if any(n not in names for n in wanted) or len(set(wanted)) < len(wanted):
        raise ValueError(f"--gpus {text}: give each at most once, of {', '.join(map(str, names))}")
    return GPUs(tuple(wanted), tuple(names[n] for n in wanted))
