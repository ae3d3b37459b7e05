# SPDX-License-Identifier: MIT
"""Which GPUs a benchmark runs on."""

from __future__ import annotations

from dataclasses import dataclass

from mori import device

from ..suite import Unavailable


@dataclass(frozen=True)
class GPUs:
    """Their numbers, in the order that was asked for, and what the devices are called."""

    numbers: tuple[int, ...]
    names: tuple[str, ...]

    @property
    def pair(self) -> tuple[int, int]:
        """The GPUs of the two sides of a transfer: one and the same where there is no second."""
        return self.numbers[0], self.numbers[1 % len(self.numbers)]

    @property
    def emulated(self) -> bool:
        """They are host memory behind a driver for tests, and no figure means anything."""
        return any(word in name.lower() for name in self.names for word in ("emulated", "fake"))

    def how(self) -> list[str]:
        """What a reader must know of them, for the heading."""
        told = ", ".join(f"{n} {name}" for n, name in zip(self.numbers, self.names, strict=True))
        lines = [f"GPUs: {told}"]
        if len(self.numbers) == 1:
            lines.append("one GPU only: both ends are on it")
        if self.emulated:
            lines.append("EMULATED: the figures mean nothing")
        return lines

    def facts(self, used: int) -> dict[str, object]:
        """What every result says of the GPUs; `used` is how many the case needs at most."""
        return {"gpus": min(used, len(self.numbers)), "device": self.names[0], "emulated": self.emulated}


def choose(text: str | None) -> GPUs:
    """The GPUs of a comma list of numbers, all when None.

    Raises ValueError for a wrong list, Unavailable without any GPU.
    """
    names = {info.device: info.name for info in device.devices()}
    if not names:
        raise Unavailable(f"there is no GPU to measure on: {device.why_no_device()}")
    if text is None:
        wanted = list(names)
    else:
        try:
            wanted = [int(word) for word in text.split(",")]
        except ValueError:
            raise ValueError(f"--gpus {text}: give numbers with commas between them, such as 0,1") from None
    unknown = [n for n in wanted if n not in names]
    if unknown or len(set(wanted)) < len(wanted):
        raise ValueError(f"--gpus {text}: give each at most once, of {', '.join(map(str, names))}")
    return GPUs(tuple(wanted), tuple(names[n] for n in wanted))
