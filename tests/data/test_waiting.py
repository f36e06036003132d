"""Who waited for whom, as reports, counters and explanations tell it."""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterator

import pytest
import torch
from torch.utils.data import DataLoader

import torchtpu.inspect
from torchtpu.data import LoadingReport, prefetch
from torchtpu.runtime import in_flight
from torchtpu.runtime.counters import LoadingRecord, counters

PAUSE_S = 0.02


def slow(count: int) -> Iterator[torch.Tensor]:
    for number in range(count):
        time.sleep(PAUSE_S)
        yield torch.tensor(number)


class Slow(torch.utils.data.IterableDataset):
    def __iter__(self) -> Iterator[torch.Tensor]:
        return slow(6)


def here(offset: int) -> str:
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return f"{__file__}:{frame.f_back.f_lineno + offset}"


@pytest.mark.parametrize("device", ["tpu", "cpu"])
def test_a_loop_that_waits(device):
    batches = prefetch(slow(6), device)
    assert batches.waiting == 0
    for _ in batches:
        pass
    report = batches.report()
    assert (report.batches, report.loaded) == (6, 6)
    assert report.first_wait_s >= PAUSE_S / 2
    assert report.loading_s >= 6 * PAUSE_S
    assert 3 * PAUSE_S < report.waited_s <= report.elapsed_s
    assert report.starved_s == report.waited_s
    assert 0.5 < batches.waiting == report.waiting == report.starved <= 1
    assert "give the source more workers" in str(report)
    assert f"waited {report.waited_s:.1f} s of it for data" in str(report)


def test_a_loop_that_is_waited_for():
    batches = prefetch(list(torch.ones(6)), "tpu", depth=6)
    for _ in batches:
        time.sleep(PAUSE_S)
    report = batches.report()
    assert report.elapsed_s >= 5 * PAUSE_S
    assert report.waiting < 0.4
    assert "workers" not in str(report)


def test_the_device_does_not_starve_while_it_has_work(monkeypatch):
    class Busy:
        """Like the token of a launch that goes on and on."""

        def is_ready(self) -> bool:
            return False

        def block_until_ready(self) -> None:
            pass

    torch.tpu.synchronize()
    monkeypatch.setitem(in_flight._launched, 0, in_flight.deque([Busy()]))
    batches = prefetch(slow(4), "tpu")
    for _ in batches:
        pass
    assert batches.waiting > 0.5
    assert batches.report().starved == 0


def test_a_report_of_nothing():
    assert str(prefetch([], "cpu").report()) == "prefetch: no batch yet."
    assert LoadingReport().waiting == LoadingReport().starved == 0


def test_explain_names_the_loop_that_starves_the_device():
    torch.tpu.synchronize()
    torchtpu.inspect.reset_counters()
    line = here(1)
    for batch in DataLoader(Slow(), batch_size=None):
        _ = batch.to("tpu")
    (found,) = [finding for finding in torchtpu.inspect.explain().findings if finding.kind == "data"]
    assert found.line == line
    assert found.lost_s >= 5 * PAUSE_S
    assert "for 5 batches while the device had nothing to do" in found.text
    assert "torchtpu.data.prefetch" in found.suggestion
    assert torchtpu.inspect.counters()["loading"] == {line: pytest.approx(found.lost_s)}


def test_explain_counts_the_loop_and_not_the_thread_that_loads():
    torch.tpu.synchronize()
    torchtpu.inspect.reset_counters()
    line = here(1)
    for _ in prefetch(prefetch(DataLoader(Slow(), batch_size=None), "cpu"), "tpu"):
        pass
    assert list(torchtpu.inspect.counters()["loading"]) == [line]
    torchtpu.inspect.reset_counters()
    assert torchtpu.inspect.counters()["loading"] == {}


@pytest.mark.parametrize(("num_batches", "starved_s", "is_told"), [(9, 4.0, True), (9, 1.0, False), (1, 4.0, False)])
def test_only_what_is_worth_it_is_told(num_batches, starved_s, is_told):
    torchtpu.inspect.reset_counters()
    counters.start_s -= 50
    counters.loading["train.py:7"] = LoadingRecord(num_batches, 9.0, starved_s)
    assert [f.line for f in torchtpu.inspect.explain().findings if f.kind == "data"] == ["train.py:7"] * is_told
    torchtpu.inspect.reset_counters()
