# SPDX-License-Identifier: MIT
"""The hot C functions of the extension; pybind.InstallFast makes this module at run time.

They keep the GIL unless they wait. Errors are RuntimeErrors whose text is "E_CODE|message".
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import SupportsIndex

from mori.io._enums import StatusCode
from mori.io._status import TransferStatus

def setup(base: type[TransferStatus], codes: Mapping[int, StatusCode]) -> type[TransferStatus]:
    """Make the C status type, a subclass of base whose Code() gives the members in codes."""

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
    tag: str = ...,
) -> TransferStatus:
    """Submit a batch."""

def post_one(
    session: int,
    is_write: bool,
    local_offset: SupportsIndex,
    remote_offset: SupportsIndex,
    size: SupportsIndex,
    uid: SupportsIndex,
    tag: str = ...,
) -> TransferStatus:
    """Submit one transfer."""

def wait_all(statuses: Iterable[TransferStatus | None], timeout_ms: int) -> int:
    """Wait for all statuses and return a status code; releases the GIL."""

def alloc_uid(engine: int) -> int:
    """Return the engine's next transfer uid."""

def pop_inbound(engine: int, remote_key: str, uid: SupportsIndex) -> bool:
    """Tell whether the notification uid of the engine named remote_key has arrived."""
