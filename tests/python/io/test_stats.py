# SPDX-License-Identifier: MIT
"""What an engine reports about its transfers: stats, traces, tags, and the metrics port."""

from __future__ import annotations

import itertools
import json
import os
import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mori.io import BackendType, IOEngine, IOEngineSession, StatusCode
from support import Peer, Region, eventually, finish, introduce, pattern, succeed

SIZE = 1 << 16


@pytest.fixture
def session(two_engines: tuple[IOEngine, IOEngine]) -> Iterator[IOEngineSession]:
    left, right = two_engines
    here, there = Region(left, pattern(SIZE)), Region(right, SIZE)
    yield left.create_session(here.desc, there.desc)
    del here, there  # they had to live until now


def only_path(engine: IOEngine) -> dict[str, Any]:
    [peer] = engine.stats()["peers"]
    [path] = peer["paths"]
    assert peer["known"]
    assert path["open"]
    return path


def test_stats(two_engines: tuple[IOEngine, IOEngine], session: IOEngineSession) -> None:
    left, right = two_engines
    for uid in range(20):
        succeed(session.write(0, 0, SIZE, uid))
    succeed(session.batch_read([0, 100], [50, 0], [10, 5], 20))
    assert session.write(SIZE, 0, 1, 21).Code() == StatusCode.ERR_INVALID_ARGS
    stats = left.stats()
    assert stats["key"] == "left"
    assert stats["regions"] == 1
    assert stats["in_flight"] == 0
    assert stats["totals"] == {
        "reads": 1,
        "writes": 20,
        "read_bytes": 15,
        "write_bytes": 20 * SIZE,
        "failed": 0,
        "canceled": 0,
        "refused": 1,
        "replays": 0,
        "altered": 0,
        "packed": 0,
    }
    assert stats["totals"] == left.describe()["counters"]
    path = only_path(left)
    assert path["path"] == session.describe()["path"]
    assert (path["write"]["transfers"], path["write"]["bytes"]) == (20, 20 * SIZE)
    assert (path["read"]["transfers"], path["read"]["bytes"]) == (1, 15)
    latency = path["write"]["latency"]
    assert latency["count"] == 20 == sum(bucket["count"] for bucket in latency["buckets"])
    assert 0 < latency["p50_us"] <= latency["p90_us"] <= latency["p99_us"]
    assert [bucket["below_us"] for bucket in latency["buckets"]] == sorted(
        bucket["below_us"] for bucket in latency["buckets"]
    )
    assert len(stats["slowest"]) == 16
    assert stats["slowest"][0]["took_us"] >= stats["slowest"][-1]["took_us"] > 0
    assert stats["stuck"] == []
    assert right.stats()["totals"]["writes"] == 0
    eventually(lambda: only_path(left)["write"]["bytes_per_s_10s"] > 0)


def test_failures_by_code(make_engine: Callable[..., IOEngine]) -> None:
    left, right = make_engine("left", BackendType.TCP), make_engine("right", BackendType.TCP)
    introduce(left, right)
    here, there = Region(left, SIZE), Region(right, SIZE)
    session = left.create_session(here.desc, there.desc)
    right.deregister_memory(there.desc)
    status = session.write(0, 0, 8, 1, tag="the lost one")
    assert finish(status) == StatusCode.ERR_NOT_FOUND
    assert 'tag "the lost one"' in status.Message()
    written = left.stats()["peers"][0]["paths"][0]["write"]
    assert written["failures"] == {"ERR_NOT_FOUND": 1}
    assert (written["failed"], written["transfers"]) == (1, 0)


def test_trace(two_engines: tuple[IOEngine, IOEngine], session: IOEngineSession, tmp_path: Path) -> None:
    left, _ = two_engines
    for uid in range(10):
        succeed(session.write(0, 0, SIZE, uid, tag=f"req-{uid}"))
    file = tmp_path / "trace.json"
    text = left.dump_trace(file)
    assert file.read_text(encoding="utf-8") == text
    assert left.dump_trace(str(file))
    events = json.loads(text)["traceEvents"]
    [process] = [e for e in events if e["name"] == "process_name"]
    assert process["ph"] == "M"
    assert process["pid"] == os.getpid()
    tracks = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    slices = [e for e in events if e["ph"] == "X" and e["cat"] == "transfer"]
    assert [e["args"]["tag"] for e in slices] == [f"req-{uid}" for uid in range(10)]
    for before, after in itertools.pairwise(slices):
        assert before["ts"] <= after["ts"]
    for e in slices:
        assert e["dur"] > 0
        assert tracks[e["tid"]].startswith(f"left → right over {session.describe()['path']}")
        assert e["args"]["code"] == "SUCCESS"
        assert e["args"]["bytes_done"] == e["args"]["bytes"] == SIZE
    with pytest.raises(OSError):
        left.dump_trace(tmp_path / "no" / "such" / "folder")


def test_tags(two_engines: tuple[IOEngine, IOEngine], session: IOEngineSession) -> None:
    left, right = two_engines
    long = "é" * 32
    calls = [
        lambda uid: session.write(0, 0, 8, uid, tag="a write"),
        lambda uid: session.read(0, 0, 8, uid, tag="a\0read\n"),
        lambda uid: session.batch_write([0], [0], [8], uid, tag=long),
        lambda uid: session.batch_read([0], [0], [8], uid, deadline_ms=5000, tag="with a deadline"),
        lambda uid: session.write(0, 0, 8, uid, tag=None),
    ]
    for uid, call in enumerate(calls):
        succeed(call(uid))
    wanted = ["a write", "a\0read\n", long, "with a deadline"]
    for uid, tag in enumerate(wanted):
        assert eventually(lambda uid=uid: right.inbound_tag("left", uid)) == tag
        assert right.inbound_tag("left", uid) == tag
    assert right.inbound_tag("left", len(wanted)) is None
    assert right.inbound_tag("nobody", 0) is None
    assert left.inbound_tag("right", 0) is None
    assert {t["uid"]: t["tag"] for t in left.stats()["slowest"]} == dict(enumerate([*wanted, ""]))


@pytest.mark.parametrize(
    ("tag", "error"),
    [("", ValueError), ("x" * 65, ValueError), ("é" * 33, ValueError), ("\ud800", ValueError), (b"x", TypeError)],
    ids=["empty", "65 bytes", "66 bytes in 33 letters", "a lone surrogate", "bytes"],
)
def test_what_is_no_tag(session: IOEngineSession, tag: Any, error: type[Exception]) -> None:
    for name, args in (("read", (0, 0, 8, 1)), ("batch_write", ([0], [0], [8], 1))):
        with pytest.raises(error):
            getattr(session, name)(*args, tag=tag)


def test_tag_reaches_another_process(make_engine: Callable[..., IOEngine], make_peer: Callable[..., Peer]) -> None:
    engine, peer = make_engine("here"), make_peer("there")
    peer.meet(engine)
    _, remote = peer.register(SIZE)
    here = Region(engine, pattern(SIZE))
    succeed(engine.create_session(here.desc, remote).write(0, 0, SIZE, 7, tag="req-7"))
    assert eventually(lambda: peer.call("inbound_tag", "here", 7)) == "req-7"


def test_wrong_arguments(engine: IOEngine) -> None:
    with pytest.raises(TypeError):
        engine.inbound_tag(1, 2)
    with pytest.raises(TypeError):
        engine.inbound_tag("a", -1)
    engine.close()
    for call in (engine.stats, engine.dump_trace, lambda: engine.inbound_tag("a", 1)):
        with pytest.raises(RuntimeError):
            call()


def fetch(url: str, **options: Any) -> str:
    with urllib.request.urlopen(urllib.request.Request(url, **options), timeout=10) as answer:
        text: str = answer.read().decode()
        return text


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_metrics_port(monkeypatch: pytest.MonkeyPatch, make_engine: Callable[..., IOEngine]) -> None:
    port = free_port()
    monkeypatch.setenv("MORI_METRICS_PORT", str(port))
    left, right = make_engine("left", BackendType.TCP), make_engine('r"i\\g\nht', BackendType.TCP)
    introduce(left, right)
    here, there = Region(left, SIZE), Region(right, SIZE)
    session = left.create_session(here.desc, there.desc)
    for uid in range(3):
        succeed(session.write(0, 0, SIZE, uid))
    url = f"http://127.0.0.1:{port}"
    metrics = fetch(f"{url}/metrics").splitlines()
    assert r'mori_io_transfers_total{engine="left",peer="r\"i\\g\nht",path="tcp",op="write"} 3' in metrics
    assert "# TYPE mori_io_latency_seconds histogram" in metrics
    stats = json.loads(fetch(f"{url}/stats.json"))["engines"]
    assert [engine["key"] for engine in stats] == ["left", 'r"i\\g\nht']
    assert stats[0]["totals"]["writes"] == 3
    assert len([e for e in json.loads(fetch(f"{url}/trace.json"))["traceEvents"] if e.get("cat") == "transfer"]) == 3
    assert "<title>mori.io</title>" in fetch(f"{url}/")
    for path, options, code in (
        ("/nothing", {}, 404),
        ("/metrics", {"method": "POST"}, 405),
        ("/stats.json", {"headers": {"Host": "rebound.example"}}, 403),
    ):
        with pytest.raises(urllib.error.HTTPError) as caught:
            fetch(url + path, **options)
        assert caught.value.code == code
    left.close()
    right.close()
    with pytest.raises(urllib.error.URLError):
        fetch(f"{url}/metrics")


def test_taken_metrics_port_is_no_error(monkeypatch: pytest.MonkeyPatch, make_engine: Callable[..., IOEngine]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        monkeypatch.setenv("MORI_METRICS_PORT", str(taken.getsockname()[1]))
        engine = make_engine("solo")
        region = Region(engine, SIZE)
        succeed(engine.create_session(region.desc, region.desc).write(0, 8, 8, 1))


def test_tags_of_calls_of_the_engine(two_engines: tuple[IOEngine, IOEngine]) -> None:
    left, right = two_engines
    here, there = Region(left, SIZE), Region(right, SIZE)
    one, many = (
        (here.desc, 0, there.desc, 0, 8),
        ([here.desc] * 2, [[0], [8]], [there.desc] * 2, [[0], [8]], [[8], [8]]),
    )
    succeed(left.write(*one, 0, tag="a write"))
    succeed(left.read(*one, 1, tag="a read", deadline_ms=5000))
    for status in left.batch_write(*many, [2, 3], tag="both"):
        succeed(status)
    for status in left.batch_read(*many, [4, 5], deadline_ms=5000):
        succeed(status)
    for uid, tag in enumerate(["a write", "a read", "both", "both"]):
        assert eventually(lambda uid=uid: right.inbound_tag("left", uid)) == tag
    assert right.inbound_tag("left", 4) is None
    for bad, error in (("", ValueError), ("x" * 65, ValueError), (7, TypeError)):
        for call in (
            lambda bad=bad: left.write(*one, 6, tag=bad),
            lambda bad=bad: left.batch_write(*many, [6, 7], tag=bad),
        ):
            with pytest.raises(error, match="tag"):
                call()
