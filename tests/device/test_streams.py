"""Streams, events and synchronization: one order of work, and times as the host sees them."""

from __future__ import annotations

import threading

import pytest
import torch

from torchtpu.errors import DeviceIndexError


def flushes() -> dict[str, int]:
    from torchtpu import inspect

    return inspect.counters()["flushes"]


def test_streams_are_names():
    default, other = torch.tpu.default_stream(), torch.tpu.Stream()
    assert torch.tpu.current_stream() == default
    assert other != default and other.device == torch.device("tpu", 0)
    with torch.tpu.stream(other):
        assert torch.tpu.current_stream() == other
        with torch.tpu.stream(None):
            assert torch.tpu.current_stream() == other
    assert torch.tpu.current_stream() == default
    torch.tpu.set_stream(other)
    assert torch.accelerator.current_stream() == other
    torch.accelerator.set_stream(default)
    with other:
        assert torch.tpu.current_stream() == other
    assert torch.tpu.current_stream() == default


def test_a_stream_belongs_to_its_thread():
    seen = []
    with torch.tpu.stream(torch.tpu.Stream()):
        thread = threading.Thread(target=lambda: seen.append(torch.tpu.current_stream()))
        thread.start()
        thread.join()
    assert seen == [torch.tpu.default_stream()]


def test_work_on_two_streams_runs_in_order():
    first, second = torch.tpu.Stream(), torch.tpu.Stream()
    x = torch.zeros(4, device="tpu")
    with torch.tpu.stream(first):
        x.add_(1)
    second.wait_stream(first)
    with torch.tpu.stream(second):
        x.mul_(5)
    first.wait_event(second.record_event())
    with torch.tpu.stream(first):
        x.sub_(2)
    first.synchronize()
    assert first.query() and second.query()
    x.record_stream(first)
    assert x.tolist() == [3.0] * 4


def test_synchronize_runs_what_nobody_reads():
    before = flushes().get("synchronize", 0)
    x = torch.rand(8, device="tpu")
    x.exp()  # dropped: timing loops would measure nothing if it did not run
    torch.tpu.synchronize()
    assert flushes()["synchronize"] == before + 1
    for wait in (torch.accelerator.synchronize, torch.tpu.current_stream().synchronize):
        x.exp()
        wait()
    assert flushes()["synchronize"] == before + 3


def test_event_marks_a_point():
    x = torch.ones(64, 64, device="tpu")
    event = torch.tpu.Event()
    assert isinstance(event, torch.tpu.Event) and not isinstance(torch.Event("cpu"), torch.tpu.Event)
    assert event.query()  # never recorded: nothing to wait for
    event.synchronize()
    before = flushes().get("event", 0)
    y = x @ x
    event.record()
    assert flushes()["event"] == before + 1
    event.wait()
    event.synchronize()
    assert event.query()
    assert y[0, 0].item() == 64


def test_query_becomes_true_without_waiting():
    x = torch.ones(600, 600, device="tpu")
    for _ in range(8):
        x = x @ x / 600
    event = torch.tpu.Event()
    event.record()
    for _ in range(100_000):
        if event.query():
            break
        threading.Event().wait(0.001)
    assert event.query() and torch.tpu.current_stream().query()


def test_elapsed_time():
    x = torch.ones(400, 400, device="tpu")
    start, middle, end = (torch.tpu.Event(enable_timing=True) for _ in range(3))
    start.record()
    x @ x
    middle.record()
    for _ in range(10):
        x @ x
    end.record()
    end.synchronize()
    assert 0 <= start.elapsed_time(middle) <= start.elapsed_time(end)
    assert start.elapsed_time(end) == pytest.approx(start.elapsed_time(middle) + middle.elapsed_time(end), abs=1e-3)


def test_elapsed_time_needs_two_timed_events():
    timed, untimed = torch.tpu.Event(enable_timing=True), torch.tpu.Event()
    untimed.record()
    for one, other in ((timed, untimed), (untimed, timed)):
        with pytest.raises(ValueError, match="enable_timing"):
            one.elapsed_time(other)
    timed.record()
    timed.synchronize()
    with pytest.raises(ValueError, match="recorded"):
        timed.elapsed_time(torch.tpu.Event(enable_timing=True))


def test_an_event_can_be_recorded_again():
    event = torch.Event("tpu", enable_timing=True)
    x = torch.ones(4, device="tpu")
    first = torch.Event("tpu", enable_timing=True)
    first.record()
    event.record()
    event.synchronize()
    short = first.elapsed_time(event)
    x.add_(1)
    event.record(torch.tpu.Stream())
    event.synchronize()
    assert first.elapsed_time(event) > short
    assert event.device == torch.device("tpu", 0)


def test_events_are_forgotten():
    from torchtpu.runtime import in_flight

    before = len(in_flight._events)
    for _ in range(20):
        event = torch.tpu.Event()
        event.record()
    del event
    assert len(in_flight._events) == before


def test_streams_of_devices_that_do_not_exist():
    with pytest.raises(DeviceIndexError):
        torch.Stream("tpu:9")
