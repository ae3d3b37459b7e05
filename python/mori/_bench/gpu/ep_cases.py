# SPDX-License-Identifier: MIT
"""The cases of `mori bench ep --device gpu`: what is called with how many tokens, and how it is launched."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from ..cases import Case, Target

Mode = Literal["graph", "eager"]
Kind = Literal["dispatch", "combine", "combine-in-place", "both"]

FULL_TOKENS = (1, 8, 32, 128, 512, 1024, 2048, 4096, 8192)
BUDGETS = (8, 16, 24, 32, 64, 128)
MOST_TOKENS = max(FULL_TOKENS)
_SHORT = {"float8_e4m3fn": "fp8", "bfloat16": "bf16"}
_QUICK_TOKENS = 16
# Nine tenths of what the memcpy moves in the same time.
_WIRE = Target("ratio", "<=", round(1 / 0.9, 2))
_FEW = 1024


@dataclass(frozen=True)
class EPCase(Case):
    """One call, of `tokens` tokens a rank: microseconds.

    `blocks` and `warps` of each: of the launch, None: as mori chooses. `calls` of them make a round, of other tokens
    each, `rounds` rounds a sample.
    """

    tokens: int = 0
    dtype: str = "bfloat16"
    blocks: int | None = None
    warps: int | None = None
    mode: Mode = "graph"
    skewed: bool = False
    calls: int = 8
    rounds: int = 3

    def quick(self) -> EPCase:
        """The same with little work."""
        return replace(self, tokens=min(self.tokens, _QUICK_TOKENS), calls=2, rounds=1)


def case(
    kind: Kind,
    tokens: int,
    dtype: str = "bfloat16",
    blocks: int | None = None,
    mode: Mode = "graph",
    skewed: bool = False,
) -> EPCase:
    """The case of these, named by them: dispatch-4096-fp8-24blocks-skewed-eager."""
    words = [kind, str(tokens), _SHORT[dtype]]
    words += [f"{blocks}blocks"] if blocks else []
    words += ["skewed"] if skewed else []
    words += ["eager"] if mode == "eager" else []
    made = EPCase("-".join(words), kind, "us", target=_WIRE if tokens >= _FEW else None)
    calls = 8 if tokens >= _FEW else 32
    return replace(made, tokens=tokens, dtype=dtype, blocks=blocks, mode=mode, skewed=skewed, calls=calls)


_PLAIN: tuple[tuple[Kind, str], ...] = (
    ("dispatch", "float8_e4m3fn"),
    ("dispatch", "bfloat16"),
    ("combine", "bfloat16"),
    ("combine-in-place", "bfloat16"),
)


def _shapes(tokens: Iterable[int], **more: object) -> Iterator[EPCase]:
    for n in tokens:
        for kind, dtype in _PLAIN:
            yield case(kind, n, dtype, **more)  # type: ignore[arg-type]


def _budgets(tokens: Iterable[int]) -> Iterator[EPCase]:
    for blocks in BUDGETS:
        yield from _shapes(tokens, blocks=blocks)


def full() -> list[EPCase]:
    """Everything."""
    modes: tuple[Mode, ...] = ("graph", "eager")
    return [
        *(one for mode in modes for one in _shapes(FULL_TOKENS, mode=mode)),
        *(one for mode in modes for one in _shapes((128, 4096), mode=mode, skewed=True)),
        *_budgets((128, 4096)),
        *(case("both", n, mode=mode) for mode in modes for n in FULL_TOKENS),
    ]


def usual() -> list[EPCase]:
    """What is measured without --full."""
    return [
        *_shapes((1, 128, 1024, 4096, 8192)),
        *(one for one in _budgets((4096,)) if one.blocks in (8, 24, 64, 128)),
        *_shapes((1, 128, 4096), mode="eager"),
        *_shapes((4096,), skewed=True),
        *(case("both", n) for n in (1, 128)),
    ]


NAMES = list({one.name for one in full()} | {one.name for one in usual()})
