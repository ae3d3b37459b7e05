# SPDX-License-Identifier: MIT
"""The hot C functions of the extension; pybind.InstallFast makes this module at run time.

They keep the GIL unless they wait. Errors are RuntimeErrors whose text is "E_CODE|message".
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, SupportsIndex

from mori.io._enums import StatusCode
from mori.io._status import TransferStatus

def setup(
    base: type[TransferStatus],
    codes: Mapping[int, StatusCode],
    options: Callable[[Any, Any, Any], tuple[int, str, int, int, int]],
    from_native: Callable[[RuntimeError], Exception],
) -> type[TransferStatus]:
    """Make the C status type, a subclass of base whose Code() gives the members in codes.

    options turns deadline_ms, tag and after into numbers (mori.io._transfer), from_native errors into mori's.
    """

def new_status() -> TransferStatus:
    """Return a status in state INIT."""

def failed_status(code: int, message: str) -> TransferStatus:
    """Return a status that has already ended with code."""

def post(
    session: int,
    is_write: bool,
    local_offsets: Sequence[SupportsIndex],
    remote_offsets: Sequence[SupportsIndex],
    sizes: Sequence[SupportsIndex],
    uid: SupportsIndex,
    deadline_ms: int | None = ...,
    tag: str | None = ...,
    after: Any = ...,
) -> TransferStatus:
    """Submit a batch; the three options come together or not at all. Raises mori's exceptions."""

def post_one(
    session: int,
    is_write: bool,
    local_offset: SupportsIndex,
    remote_offset: SupportsIndex,
    size: SupportsIndex,
    uid: SupportsIndex,
    deadline_ms: int | None = ...,
    tag: str | None = ...,
    after: Any = ...,
) -> TransferStatus:
    """Submit a batch of one entry, like post."""

def wait_all(statuses: Iterable[TransferStatus | None], timeout_ms: int) -> int:
    """Wait for all statuses and return a status code; releases the GIL."""

def alloc_uid(engine: int) -> int:
    """Return the engine's next transfer uid."""

def pop_inbound(engine: int, remote_key: str, uid: SupportsIndex) -> bool:
    """Tell whether the notification uid of the engine named remote_key has arrived."""

def shmem_setup(types: dict[Any, int], resolve: Callable[[Any], int], refusal: type[Exception]) -> None:
    """Say how dtypes are known: resolve(dtype) is number << 8 | size, kept in types. refusal is what refusals raise."""

def shmem_address(memory: Any, /) -> int:
    """Return where memory begins: an int, an array, a tensor or another buffer."""

def shmem_move(kind: int, dest: Any, source: Any, nelems: int | None, pe: int, dtype: Any) -> None:
    """Put (kind 0, 2) or get (1, 3), non-blocking from 2 on. A dtype of True means bytes."""

def shmem_strided(kind: int, dest: Any, source: Any, dst: int, sst: int, nelems: int, pe: int, dtype: Any) -> None:
    """Put (kind 0) or get (1) elements that lie apart."""

def shmem_put_signal(
    kind: int, dest: Any, source: Any, nelems: int | None, sig_addr: Any, signal: int, sig_op: int, pe: int, dtype: Any
) -> None:
    """Put (kind 0, or 2: non-blocking), then update a signal."""

def shmem_p(dest: Any, value: float, pe: int, dtype: Any) -> None:
    """Store one number."""

def shmem_g(source: Any, pe: int, dtype: Any) -> Any:
    """Return one number."""

def shmem_atomic(op: int, dest: Any, value: Any, compare: Any, pe: int, dtype: Any) -> Any:
    """Do an atomic of the contract's numbers; from 12 on it returns what was there."""

def shmem_order(kind: int, /) -> None:
    """Fence (0), quiet (1), barrier_all (2) or sync_all (3); the last three release the GIL when they wait."""

def shmem_wait(how: int, ivars: Any, nelems: int, status: Any, cmp: int, values: Any, dtype: Any) -> Any:
    """Wait for one (0), all (1), any (2) or some (3) elements; + 4 tests instead; + 8 has a value for each."""

def shmem_signal_fetch(sig_addr: Any, /) -> int:
    """Return this PE's signal."""

def shmem_signal_wait_until(sig_addr: Any, cmp: int, value: int) -> int:
    """Wait for this PE's signal and return it."""

def shmem_team(kind: int, team: int, dest: Any, source: Any, nelems: int, dtype: Any, a: int, b: int) -> None:
    """Do what members do together, sync (0) to reduce (7); a is the root or the operator, or a and b are strides."""

def ep_dispatch(
    op: int,
    flags: int,
    n: int,
    hidden: int,
    dtype: int,
    input: Any,
    indices: Any,
    weights: Any,
    scales: Any,
    slots: Any,
    route_n: int,
    route_rows: int,
    stream: int,
    blocks: int,
    warps: int,
) -> int:
    """Dispatch, or begin to, and return how many rows came. flags are those of pybind/fast_ep.h."""

def ep_combine(
    op: int,
    flags: int,
    rows: int,
    hidden: int,
    dtype: int,
    input: Any,
    weights: Any,
    slots: Any,
    route_n: int,
    route_rows: int,
    stream: int,
    blocks: int,
    warps: int,
) -> None:
    """Combine, or begin to."""

def ep_recv(op: int, combine: int, flags: int, stream: int) -> int:
    """End a dispatch or combine that was begun, and return how many rows a dispatch brought."""

class Again:
    """The last dispatch and the last combine of an op on a GPU, for calls that are like them."""

    def keep(
        self,
        combine: bool,
        results: Any,
        n: int,
        hidden: int,
        dtype: int,
        flags: int,
        tokens: int,
        arrays: tuple[Any, Any, Any, Any, Any, Any],
        /,
    ) -> None:
        """Remember a call that was checked and made. flags are those of its arrays."""

    def call(
        self,
        combine: bool,
        op: int,
        flags: int,
        stream: int,
        blocks: int,
        warps: int,
        tokens: int,
        arrays: tuple[Any, Any, Any, Any, Any, Any],
        /,
    ) -> Any:
        """Make a call whose arrays have the types and shapes of the last one's, and return its results; else None."""

def ep_again(view: type, place: int) -> Again:
    """Return what knows the last calls of an op on this GPU. view is the class of arrays without a framework."""
