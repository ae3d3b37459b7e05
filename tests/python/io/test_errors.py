# SPDX-License-Identifier: MIT
"""Bad input: the right answer, not a byte moved, and an engine that works afterwards."""

from __future__ import annotations

import contextlib
import mmap
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gpus import Memory
from mori.io import BackendType, EngineDesc, IOEngine, IOEngineSession, MemoryDesc, StatusCode
from mori.tensor_utils import buffer_span
from support import Region, finish, introduce, new_engine, pattern, succeed

SIZE = 1024
HUGE = 2**64 - 1


class Scene:
    """Two engines, a region on each side, and a check that nothing has moved and everything still works."""

    def __init__(self, left: IOEngine, right: IOEngine, memory: Memory | None) -> None:
        self.left, self.right, self.memory = left, right, memory
        self.here, self.there = self.region(left, pattern(SIZE, 1)), self.region(right, pattern(SIZE, 2))
        self.session: IOEngineSession = left.create_session(self.here.desc, self.there.desc)

    def region(self, engine: IOEngine, content: bytes | int = SIZE) -> Region:
        return Region(engine, content, self.memory)

    def untouched(self) -> None:
        assert bytes(self.here) == pattern(SIZE, 1)
        assert bytes(self.there) == pattern(SIZE, 2)

    def usable(self) -> None:
        self.untouched()
        succeed(self.session.write(0, 0, SIZE, 1000))
        assert bytes(self.there) == bytes(self.here)


@pytest.fixture
def scene(request: pytest.FixtureRequest, two_engines: tuple[IOEngine, IOEngine]) -> Iterator[Scene]:
    """On host memory, and on a GPU's, too, where a test uses the fixture ``memory``."""
    memory = request.getfixturevalue("memory") if "memory" in request.fixturenames else None
    scene = Scene(*two_engines, memory)
    yield scene
    scene.usable()


BOUNDS = {
    "local end": ([SIZE - 8], [0], [9]),
    "remote end": ([0], [SIZE - 8], [9]),
    "local start": ([SIZE + 1], [0], [0]),
    "remote start": ([0], [SIZE + 1], [0]),
    "whole size": ([0], [0], [SIZE + 1]),
    "offset wraps": ([HUGE], [0], [2]),
    "remote offset wraps": ([0], [HUGE], [2]),
    "size wraps": ([8], [8], [HUGE]),
    "entry over 4 GiB": ([0], [0], [2**32]),
    "last of many": ([0, 8, 16], [0, 8, SIZE], [8, 8, 8]),
    "first of many": ([SIZE, 8, 16], [0, 8, 16], [8, 8, 8]),
}


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("case", BOUNDS)
class TestBounds:
    def test_session_batch(self, scene: Scene, case: str) -> None:
        for batch in (scene.session.batch_write, scene.session.batch_read):
            status = batch(*BOUNDS[case], 0)
            assert finish(status) == StatusCode.ERR_INVALID_ARGS
            assert "length out of range" in status.Message()
            scene.untouched()

    def test_engine_batch(self, scene: Scene, case: str) -> None:
        local, remote, sizes = BOUNDS[case]
        for batch in (scene.left.batch_write, scene.left.batch_read):
            [status] = batch([scene.here.desc], [local], [scene.there.desc], [remote], [sizes], [0])
            assert finish(status) == StatusCode.ERR_INVALID_ARGS
            scene.untouched()

    def test_single(self, scene: Scene, case: str) -> None:
        local, remote, sizes = BOUNDS[case]
        entries = list(zip(local, remote, sizes, strict=True))
        at, to, size = entries[0] if case == "first of many" else entries[-1]
        for status in (
            scene.session.write(at, to, size, 0),
            scene.session.read(at, to, size, 1),
            scene.left.write(scene.here.desc, at, scene.there.desc, to, size, 2),
            scene.left.read(scene.here.desc, at, scene.there.desc, to, size, 3),
        ):
            assert finish(status) == StatusCode.ERR_INVALID_ARGS
        scene.untouched()


@pytest.mark.parametrize(
    ("local", "remote", "sizes"),
    [([0, 8], [0], [8]), ([0], [0, 8], [8]), ([0], [0], [8, 8]), ([0], [0], []), ([], [], [1])],
)
class TestListLengths:
    def test_session_batch(self, scene: Scene, local: list, remote: list, sizes: list) -> None:
        for batch in (scene.session.batch_write, scene.session.batch_read):
            assert finish(batch(local, remote, sizes, 0)) == StatusCode.ERR_INVALID_ARGS

    def test_engine_batch_inner(self, scene: Scene, local: list, remote: list, sizes: list) -> None:
        [status] = scene.left.batch_write([scene.here.desc], [local], [scene.there.desc], [remote], [sizes], [0])
        assert finish(status) == StatusCode.ERR_INVALID_ARGS


@pytest.mark.parametrize("column", range(6))
def test_engine_batch_outer_lengths(scene: Scene, column: int) -> None:
    columns: list[list[Any]] = [[scene.here.desc], [[0]], [scene.there.desc], [[0]], [[8]], [0]]
    columns[column] = columns[column] * 2
    for batch in (scene.left.batch_write, scene.left.batch_read):
        with pytest.raises(ValueError, match="has 2"):
            batch(*columns)


WRONG_LISTS = {
    "str": "0",
    "bytes": b"\x00",
    "float": [0.0],
    "negative": [-1],
    "too large": [2**64],
    "text element": ["0"],
    "None element": [None],
    "None": None,
    "int": 0,
    "set": {0},
    "generator": (n for n in [0]),
    "nested": [[0]],
}


@pytest.mark.parametrize("wrong", WRONG_LISTS)
@pytest.mark.parametrize("column", range(3))
class TestWrongLists:
    def test_session_batch(self, scene: Scene, wrong: str, column: int) -> None:
        columns: list[Any] = [[0], [0], [8]]
        columns[column] = WRONG_LISTS[wrong]
        for batch in (scene.session.batch_write, scene.session.batch_read):
            with pytest.raises(TypeError):
                batch(*columns, 0)

    def test_engine_batch(self, scene: Scene, wrong: str, column: int) -> None:
        columns: list[Any] = [[0], [0], [8]]
        columns[column] = WRONG_LISTS[wrong]
        with pytest.raises(TypeError):
            scene.left.batch_write([scene.here.desc], [columns[0]], [scene.there.desc], [columns[1]], [columns[2]], [0])

    def test_last_of_two_pairs(self, scene: Scene, wrong: str, column: int) -> None:
        columns: list[Any] = [[[0], [0]], [[0], [0]], [[8], [8]]]
        columns[column] = [columns[column][0], WRONG_LISTS[wrong]]
        with pytest.raises(TypeError):
            scene.left.batch_write(
                [scene.here.desc] * 2, columns[0], [scene.there.desc] * 2, columns[1], columns[2], [0, 1]
            )


@pytest.mark.parametrize("wrong", [0.0, -1, 2**64, "0", None, [0]], ids=repr)
@pytest.mark.parametrize("place", range(4))
def test_wrong_scalars(scene: Scene, wrong: object, place: int) -> None:
    args: list[Any] = [0, 0, 8, 0]
    args[place] = wrong
    local, remote, size, uid = args
    for call in (
        lambda: scene.session.write(*args),
        lambda: scene.session.read(*args),
        lambda: scene.left.write(scene.here.desc, local, scene.there.desc, remote, size, uid),
        lambda: scene.left.read(scene.here.desc, local, scene.there.desc, remote, size, uid),
    ):
        with pytest.raises(TypeError):
            call()


@pytest.mark.parametrize("wrong", [0.5, -1, 2**64, "0", None], ids=repr)
def test_wrong_uids_of_batches(scene: Scene, wrong: object) -> None:
    with pytest.raises(TypeError):
        scene.session.batch_write([0], [0], [8], wrong)
    with pytest.raises(TypeError):
        scene.left.batch_write([scene.here.desc], [[0]], [scene.there.desc], [[0]], [[8]], [wrong])


def test_numpy_floats_and_shapes(scene: Scene) -> None:
    np = pytest.importorskip("numpy", reason="numpy is not installed")
    for wrong in (np.array([0.0]), np.array([[0]]), np.array(0), np.array([-1])):
        with pytest.raises(TypeError):
            scene.session.batch_write(wrong, [0], [8], 0)


@pytest.mark.parametrize("wrong", [None, b"packed", 5, "desc"])
def test_wrong_descriptors(scene: Scene, wrong: object) -> None:
    for local, remote in ((scene.here.desc, wrong), (wrong, scene.there.desc)):
        with pytest.raises(TypeError):
            scene.left.write(local, 0, remote, 0, 8, 0)
        with pytest.raises(TypeError):
            scene.left.batch_write([local], [[0]], [remote], [[0]], [[8]], [0])


def refused(call: Callable[[], Any], *names: str) -> None:
    """A pair that cannot work: an exception or a failed status, and its text names what is wrong."""
    try:
        result = call()
    except RuntimeError as err:
        text = str(err)
    else:
        if result is None:
            return
        status = result[0] if isinstance(result, list) else result
        assert finish(status).value > 10
        text = status.Message()
    assert text
    for name in names:
        assert name in text


@pytest.mark.usefixtures("memory")
class TestUnusablePairs:
    def every_call(self, scene: Scene, local: MemoryDesc, remote: MemoryDesc, *names: str) -> None:
        left = scene.left
        refused(lambda: left.write(local, 0, remote, 0, 8, 0), *names)
        refused(lambda: left.read(local, 0, remote, 0, 8, 0), *names)
        refused(lambda: left.batch_write([local], [[0]], [remote], [[0]], [[8]], [0]), *names)
        refused(lambda: left.batch_read([local], [[0]], [remote], [[0]], [[8]], [0]), *names)

        def through_a_session() -> Any:
            session = left.create_session(local, remote)
            return session and session.write(0, 0, 8, 0)

        refused(through_a_session, *names)
        scene.untouched()

    def test_empty_descriptors(self, scene: Scene) -> None:
        self.every_call(scene, MemoryDesc(), scene.there.desc)
        self.every_call(scene, scene.here.desc, MemoryDesc())

    def test_unknown_peer(self, scene: Scene, make_engine: Callable[..., IOEngine], backend: BackendType) -> None:
        stranger = scene.region(make_engine("stranger", backend))
        self.every_call(scene, scene.here.desc, stranger.desc, "stranger")

    def test_foreign_local(self, scene: Scene) -> None:
        self.every_call(scene, scene.there.desc, scene.there.desc)

    def test_stale_local(self, scene: Scene) -> None:
        stale = scene.region(scene.left)
        scene.left.deregister_memory(stale.desc)
        self.every_call(scene, stale.desc, scene.there.desc)

    def test_stale_remote(self, scene: Scene) -> None:
        stale = scene.region(scene.right, pattern(SIZE, 3))
        scene.right.deregister_memory(stale.desc)
        self.every_call(scene, scene.here.desc, stale.desc)
        assert bytes(stale) == pattern(SIZE, 3)

    def test_stale_remote_of_a_session(self, scene: Scene) -> None:
        target = scene.region(scene.right, pattern(SIZE, 3))
        session = scene.left.create_session(scene.here.desc, target.desc)
        succeed(session.read(0, 0, 0, 0))
        scene.right.deregister_memory(target.desc)
        refused(lambda: session.write(0, 0, 8, 0))
        refused(lambda: scene.left.write(scene.here.desc, 0, target.desc, 0, 8, 0))
        assert bytes(target) == pattern(SIZE, 3)

    def test_remote_that_claims_more(self, scene: Scene) -> None:
        # The size sits inside the packed bytes as msgpack uint16; a liar enlarges it.
        packed = scene.there.desc.pack()
        size = b"\xcd" + SIZE.to_bytes(2, "big")
        assert packed.count(size) == 1
        liar = MemoryDesc.unpack(packed.replace(size, b"\xcd" + (2 * SIZE).to_bytes(2, "big")))
        assert liar.size == 2 * SIZE
        refused(lambda: scene.left.write(scene.here.desc, 0, liar, SIZE + 8, 8, 0))

    def test_remote_with_another_secret(self, scene: Scene) -> None:
        packed = scene.there.desc.pack()
        forged = MemoryDesc.unpack(packed[:-1] + bytes([packed[-1] ^ 1]))
        self.every_call(scene, scene.here.desc, forged)

    def test_one_bad_pair_among_good_ones(
        self, scene: Scene, make_engine: Callable[..., IOEngine], backend: BackendType
    ) -> None:
        stranger = scene.region(make_engine("stranger", backend))
        target = scene.region(scene.right)
        good, bad = target.desc, stranger.desc
        statuses = scene.left.batch_write(
            [scene.here.desc] * 3, [[0], [0], [8]], [good, bad, good], [[0], [0], [8]], [[8], [8], [8]], [0, 1, 2]
        )
        codes = [finish(status) for status in statuses]
        assert [code == StatusCode.SUCCESS for code in codes] == [True, False, True]
        assert "stranger" in statuses[1].Message()
        assert bytes(target)[:16] == bytes(scene.here)[:16]


def test_unreachable_peer(make_engine: Callable[..., IOEngine], backend: BackendType) -> None:
    engine = make_engine("caller", backend)
    gone = new_engine("gone", backend)
    there = Region(gone, SIZE)
    introduce(engine, gone)
    gone.close()
    here = Region(engine, pattern(SIZE))
    refused(lambda: engine.write(here.desc, 0, there.desc, 0, 8, 0), "gone")
    succeed(engine.write(here.desc, 0, here.desc, 8, 8, 1))


def test_peer_without_rdma(make_engine: Callable[..., IOEngine]) -> None:
    engine = make_engine("caller")
    there = Region(make_engine("other"), SIZE)
    # Port 1 in a description says: this engine has no RDMA.
    engine.register_remote_engine(EngineDesc.unpack(b"\x96\xa5other\xa1n\xa1h\xa9127.0.0.1\x01\x05"))
    here = Region(engine, SIZE)
    refused(lambda: engine.create_session(here.desc, there.desc))


def test_entry_over_four_gigabytes(scene: Scene) -> None:
    size = 5 << 30
    with mmap.mmap(-1, size) as sparse:
        region = scene.left.register_memory(*buffer_span(sparse))
        session = scene.left.create_session(region, region)
        for entry in (2**32, size):
            status = session.write(0, 0, entry, 0)
            assert finish(status) == StatusCode.ERR_INVALID_ARGS
            assert status.Message()
        scene.left.deregister_memory(region)


GARBAGE = {
    "nothing": b"",
    "text": b"GET / HTTP/1.1\r\n\r\n",
    "noise": pattern(65536, 9),
    "zeros": bytes(4096),
    "ones": b"\xff" * 4096,
    "half a header": b"\x00\x00\x00",
    "a length of 4 GiB": b"\x01\xff\xff\xff\xff" + bytes(64),
    "a body that ends early": b"\x01\x00\x00\x00\x40\x93",
}


@pytest.mark.parametrize("what", GARBAGE)
@pytest.mark.parametrize("then", ["close", "stay"])
def test_garbage_on_the_control_port(scene: Scene, what: str, then: str) -> None:
    ports = [engine.get_engine_desc().port for engine in (scene.left, scene.right)]
    with contextlib.ExitStack() as stack:
        for port in ports:
            strays = [stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=5)) for _ in range(3)]
            for stray in strays:
                # A refused peer may cut the connection while we still send.
                with contextlib.suppress(OSError):
                    stray.sendall(GARBAGE[what])
            if then == "close":
                for stray in strays:
                    stray.close()
        succeed(scene.session.read(0, 0, 0, 0))
        fresh = Region(scene.right, 64)
        succeed(scene.left.write(scene.here.desc, 0, fresh.desc, 0, 64, 1))
        assert bytes(fresh) == bytes(scene.here)[:64]
