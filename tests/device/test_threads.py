"""Several threads record at once: right numbers, and no more programs than one thread makes."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch

from torchtpu import inspect


def in_threads(job: Callable[[int], object], num_threads: int = 4) -> list[object]:
    """What ``job(number)`` returned in each thread; the first error is raised."""
    results: dict[int, object] = {}
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            results[number] = job(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(num_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive(), "a thread hangs"
    if errors:
        raise errors[0]
    return [results[number] for number in range(num_threads)]


def train(number: int) -> list[float]:
    generator = torch.Generator().manual_seed(number)
    weights = [torch.randn(6, 6, generator=generator).to("tpu").requires_grad_() for _ in range(2)]
    x = torch.randn(5, 6, generator=generator).to("tpu")
    optimizer = torch.optim.AdamW(weights, lr=0.1)
    losses = []
    for _ in range(8):
        loss = ((x @ weights[0]).relu() @ weights[1]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_training_in_threads():
    alone = [train(number) for number in range(4)]
    compiles = inspect.counters()["compiles"]
    for _ in range(3):
        assert in_threads(train) == alone
    assert inspect.counters()["compiles"] == compiles


def test_threads_compile_no_more_than_one_does():
    def job(number: int, width: int) -> float:
        x = torch.ones(3, width, device="tpu") * (1.0 + number)
        return x.cos().sum().item()

    torch.tpu.synchronize()
    before = inspect.counters()["compiles"]
    job(0, 11)
    alone = inspect.counters()["compiles"] - before
    results = in_threads(lambda number: job(number, 13), 8)  # the same in another shape
    assert inspect.counters()["compiles"] - before - alone == alone == 1
    for number, result in enumerate(results):
        assert result == pytest.approx(torch.full((3, 13), 1.0 + number).cos().sum().item(), rel=1e-5)


def test_values_pass_between_threads_before_they_are_computed():
    x = torch.arange(4.0, device="tpu")
    recorded = x * 2

    def job(number: int) -> torch.Tensor:
        return recorded + number  # still pending when the thread ends

    sums = in_threads(job)
    assert [value.tolist() for value in sums] == [[n, n + 2, n + 4, n + 6] for n in range(4)]


def test_all_threads_write_to_one_tensor():
    total = torch.zeros(3, device="tpu")
    lock = threading.Lock()

    def job(number: int) -> None:
        for _ in range(25):
            with lock:
                total.add_(number)

    in_threads(job)
    assert total.tolist() == [150, 150, 150]


def test_streams_of_random_numbers_stay_apart():
    def job(number: int) -> list[float]:
        generator = torch.Generator("tpu").manual_seed(number)
        return [torch.rand(2, device="tpu", generator=generator).sum().item() for _ in range(10)]

    assert in_threads(job) == [job(number) for number in range(4)]


def test_synchronize_reaches_the_work_of_other_threads():
    from torchtpu import _C

    left = in_threads(lambda number: torch.ones(4, device="tpu") * number)
    torch.tpu.synchronize()
    assert [_C.state(value) for value in left] == ["array"] * 4


def test_copies_in_and_out():
    def job(number: int) -> bool:
        for step in range(10):
            source = torch.full((100,), float(number * 100 + step)).pin_memory()
            x = source.to("tpu", non_blocking=True)
            if not torch.equal((x + 1).cpu(), source + 1):
                return False
        return True

    assert all(in_threads(job))
