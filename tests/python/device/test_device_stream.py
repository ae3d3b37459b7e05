# SPDX-License-Identifier: MIT
"""Streams and events: what is ordered comes in order, and every wait ends."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import gpus
from mori import device
from mori.device import BadStateError, InvalidArgumentError, MoriTimeoutError
from support import eventually, pattern

MIB = 1 << 20

pytestmark = pytest.mark.usefixtures("gpu")


class Foreign:
    """A stream or event as torch has them: the driver's handle, and a device with an index."""

    def __init__(self, index: int, **handle: int) -> None:
        self.device = type("device", (), {"index": index})()
        self.__dict__.update(handle)


def busy(stream: device.Stream, memory: device.DeviceMemory, host: device.HostMemory, times: int = 16) -> None:
    """Give a stream some milliseconds of work: copies that leave `host` as `memory` is."""
    for _ in range(times):
        device.copy(host, memory, memory.nbytes, stream)


class TestStream:
    def test_in_order(self) -> None:
        first, last = pattern(MIB, 1), pattern(MIB, 2)
        with (
            device.DeviceMemory(MIB) as a,
            device.DeviceMemory(MIB) as b,
            device.DeviceMemory(MIB) as c,
            device.Stream() as stream,
        ):
            a.write(first)
            b.write(last)
            for _ in range(5):
                device.copy(c, a, MIB, stream)
                device.copy(c, b, MIB, stream)
            device.copy(a, c, MIB, stream)
            stream.wait(30)
            assert stream.done()
            assert a.read() == c.read() == last

    def test_across_streams(self) -> None:
        content = pattern(16 * MIB)
        with (
            device.DeviceMemory(len(content)) as source,
            device.DeviceMemory(len(content)) as between,
            device.DeviceMemory(len(content)) as end,
            device.HostMemory(len(content)) as host,
            device.Stream() as producer,
            device.Stream(urgent=True) as consumer,
        ):
            for turn in range(3):
                source.write(content)
                between.fill(turn)
                end.fill(turn)
                busy(producer, between, host, 4)
                device.copy(between, source, len(content), producer)
                consumer.wait_event(producer.record_event())
                device.copy(end, between, len(content), consumer)
                consumer.wait(60)
                assert end.read() == content

    def test_across_gpus(self) -> None:
        gpus.need(2)
        content = pattern(4 * MIB)
        with (
            device.DeviceMemory(len(content), 0) as source,
            device.DeviceMemory(len(content), 0) as between,
            device.DeviceMemory(len(content), 1) as end,
            device.HostMemory(len(content)) as host,
            device.Stream(0) as producer,
            device.Stream(1) as consumer,
        ):
            source.write(content)
            busy(producer, between, host, 4)
            device.copy(between, source, len(content), producer)
            consumer.wait_event(producer.record_event())
            device.copy(end, between, len(content), consumer)
            consumer.wait(60)
            assert end.read() == content

    def test_calls_without_a_stream_come_after_the_default_stream(self) -> None:
        content = pattern(8 * MIB)
        default = device.Stream.borrow(0)
        with (
            device.DeviceMemory(len(content)) as source,
            device.DeviceMemory(len(content)) as end,
            device.HostMemory(len(content)) as host,
        ):
            source.write(content)
            busy(default, end, host, 4)
            device.copy(end, source, len(content), default)
            assert end.read() == content
            device.copy(end, source, len(content), default)
            end.fill(1)
            assert end.read(100) == b"\1" * 100

    def test_waits_end(self) -> None:
        with (
            device.DeviceMemory(64 * MIB) as memory,
            device.HostMemory(64 * MIB) as host,
            device.Stream() as stream,
        ):
            busy(stream, memory, host)
            event = stream.record_event()
            assert not stream.done()
            assert not event.done()
            for wait in (stream.wait, event.wait):
                with pytest.raises(MoriTimeoutError, match="not finished"):
                    wait(0)
            event.wait(60)
            assert event.done()
            stream.wait(60)
            assert stream.done()

    @pytest.mark.parametrize("seed", range(1, 6))
    def test_order_when_streams_are_slow(self, seed: int) -> None:
        content, last = pattern(4096, seed), len(device.devices()) - 1
        with (
            gpus.delays(seed),
            device.DeviceMemory(4096, 0) as source,
            device.DeviceMemory(4096, 0) as between,
            device.DeviceMemory(4096, last) as end,
            device.Stream(0) as producer,
            device.Stream(last) as consumer,
        ):
            for _ in range(5):
                source.write(content)
                end.fill(0)
                device.copy(between, source, 4096, producer)
                consumer.wait_event(producer.record_event())
                device.copy(end, between, 4096, consumer)
                consumer.wait(30)
                assert end.read() == content
                between.fill(0)

    def test_nothing_happens_before_the_event(self) -> None:
        with (
            device.DeviceMemory(64) as source,
            device.DeviceMemory(64) as end,
            device.Stream() as producer,
            device.Stream() as consumer,
        ):
            source.fill(5)
            end.fill(0)
            with gpus.hold():
                consumer.wait_event(producer.record_event())
                device.copy(end, source, 64, consumer)
                with pytest.raises(MoriTimeoutError, match="not finished"):
                    consumer.wait(0.05)
                assert not consumer.done()
            consumer.wait(30)
            assert end.read() == b"\5" * 64

    def test_a_kernel_that_went_wrong(self) -> None:
        with device.Stream() as stream:
            with gpus.failing("cuStreamQuery=719"), pytest.raises(device.MoriError, match="719"):
                stream.wait(10)
            stream.wait(10)

    def test_ctrl_c_ends_a_call_without_a_stream(self) -> None:
        with device.DeviceMemory(64) as memory, device.DeviceMemory(64) as other:
            other.fill(1)
            memory.fill(2)
            timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
            with gpus.hold():
                device.copy(memory, other, 64, device.Stream.borrow(0))
                timer.start()
                with pytest.raises(KeyboardInterrupt):
                    memory.read()
            timer.join()
            assert memory.read() == b"\1" * 64

    @pytest.mark.parametrize(
        ("code", "error"), [(1, InvalidArgumentError), (2, device.OutOfMemoryError), (700, BadStateError)]
    )
    def test_a_copy_that_the_driver_refuses(self, code: int, error: type[Exception]) -> None:
        with device.DeviceMemory(64) as memory, device.Stream() as stream:
            memory.fill(1)
            with gpus.failing(f"cuMemcpyAsync={code}"):
                with pytest.raises(error, match="copy 64 bytes"):
                    memory.read()
                with pytest.raises(error, match="copy 8 bytes"):
                    device.copy(memory, memory.ptr + 8, 8, stream)
            assert memory.read() == b"\1" * 64

    def test_streams_and_events_that_the_driver_refuses(self) -> None:
        with gpus.failing("cuStreamCreateWithPriority=2,cuEventCreate=2"):
            for make in (device.Stream, device.Event):
                with pytest.raises(device.OutOfMemoryError):
                    make()

    @pytest.mark.parametrize("timeout", [-1, float("nan")])
    def test_impossible_timeouts(self, timeout: float) -> None:
        with device.Stream() as stream, pytest.raises(ValueError, match="timeout"):
            stream.wait(timeout)

    def test_ctrl_c_ends_a_wait(self) -> None:
        stop = threading.Event()
        with (
            device.DeviceMemory(64 * MIB) as memory,
            device.HostMemory(64 * MIB) as host,
            device.Stream() as stream,
        ):

            def keep_busy() -> None:
                behind = []
                while not stop.is_set():
                    busy(stream, memory, host, 4)
                    behind.append(stream.record_event())
                    if len(behind) > 8:
                        behind.pop(0).wait(60)

            def interrupt() -> None:
                time.sleep(0.3)
                os.kill(os.getpid(), signal.SIGINT)

            threads = [threading.Thread(target=work) for work in (keep_busy, interrupt)]
            threads[0].start()
            try:
                eventually(lambda: not stream.done())
                threads[1].start()
                with pytest.raises(KeyboardInterrupt):
                    stream.wait(60)
            finally:
                stop.set()
                threads[0].join(60)
            stream.wait(60)

    def test_borrowed(self) -> None:
        with device.DeviceMemory(16) as memory, device.DeviceMemory(16) as other, device.Stream() as stream:
            memory.fill(1)
            foreign = Foreign(0, cuda_stream=stream.cuda_stream)
            device.copy(other, memory, 8, foreign)
            device.copy(other.ptr + 8, memory, 8, stream.cuda_stream)
            borrowed = device.Stream.borrow(foreign)
            assert (borrowed.cuda_stream, borrowed.device) == (stream.cuda_stream, 0)
            borrowed.wait(30)
            borrowed.close()
            assert other.read() == b"\1" * 16
            stream.wait(30)

    def test_handles_of_another_gpu(self) -> None:
        gpus.need(2)
        with device.DeviceMemory(16, 1) as memory, device.DeviceMemory(16, 1) as other, device.Stream(1) as stream:
            memory.fill(1)
            device.copy(other, memory, 16, stream.cuda_stream)
            with device.Event(1) as event:
                event.record(stream.cuda_stream)
                event.wait(30)
            assert other.read() == b"\1" * 16

    def test_wrong_objects(self) -> None:
        with device.DeviceMemory(16) as memory, device.Stream() as stream, device.Event() as event:
            for call in (
                lambda: device.copy(memory, memory, 16, "stream"),
                lambda: stream.wait_event(stream),
                lambda: stream.wait_event(None),
                lambda: event.record(event),
                lambda: device.Stream.borrow("stream"),
            ):
                with pytest.raises(TypeError):
                    call()

    def test_closed(self) -> None:
        stream = device.Stream()
        with device.DeviceMemory(16) as memory, device.Event() as event:
            stream.close()
            stream.close()
            uses: list[Callable[[], Any]] = [
                stream.wait,
                stream.done,
                stream.record_event,
                lambda: stream.wait_event(event),
                lambda: event.record(stream),
                lambda: device.copy(memory, memory.ptr + 8, 8, stream),
            ]
            for use in uses:
                with pytest.raises(BadStateError, match="closed"):
                    use()

    def test_many_threads_on_one_stream(self) -> None:
        contents = [pattern(64 << 10, seed) for seed in range(4)]
        wrong: list[int] = []
        with device.Stream() as stream:

            def work(seed: int) -> None:
                size = len(contents[seed])
                with device.DeviceMemory(size) as a, device.DeviceMemory(size) as b:
                    a.write(contents[seed])
                    for _ in range(10):
                        device.copy(b, a, size, stream)
                        device.copy(a, b, size, stream)
                        stream.record_event().wait(60)
                    if b.read() != contents[seed]:
                        wrong.append(seed)

            threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(120)
                assert not thread.is_alive()
        assert not wrong


class TestEvent:
    def test_never_recorded_has_happened(self) -> None:
        with device.Event() as event:
            assert event.done()
            event.wait(0)

    def test_elapsed(self) -> None:
        with (
            device.DeviceMemory(16 * MIB) as memory,
            device.HostMemory(16 * MIB) as host,
            device.Stream() as stream,
        ):
            start = stream.record_event()
            busy(stream, memory, host, 4)
            end = device.Event()
            end.record(stream)
            end.wait(60)
            assert end.elapsed_ms(start) > 0
            assert start.elapsed_ms(start) == 0

    def test_elapsed_of_what_does_not_know(self) -> None:
        with device.Event(timing=False) as plain, device.Event() as timer:
            plain.record()
            timer.record()
            timer.wait(30)
            for later, start in ((plain, timer), (timer, plain)):
                with pytest.raises(InvalidArgumentError, match="timers"):
                    later.elapsed_ms(start)

    def test_of_another_gpu(self) -> None:
        gpus.need(2)
        with device.Event(0) as event, device.Stream(1) as stream, pytest.raises(InvalidArgumentError, match="GPU 1"):
            event.record(stream)

    def test_borrowed(self) -> None:
        with device.Stream() as stream, device.Event() as event:
            event.record(stream)
            foreign = Foreign(0, cuda_event=event.cuda_event)
            stream.wait_event(foreign)
            borrowed = device.Event.borrow(foreign)
            borrowed.wait(30)
            borrowed.close()
            assert event.done()
        with pytest.raises(InvalidArgumentError, match="never recorded"):
            device.Event.borrow(Foreign(0, cuda_event=0))

    def test_closed(self) -> None:
        event = device.Event()
        event.close()
        event.close()
        with device.Stream() as stream, device.Event() as other:
            uses: list[Callable[[], Any]] = [
                event.wait,
                event.done,
                event.record,
                lambda: stream.wait_event(event),
                lambda: event.elapsed_ms(other),
                lambda: other.elapsed_ms(event),
            ]
            for use in uses:
                with pytest.raises(BadStateError, match="closed"):
                    use()
