"""``torch.tpu.limit_compiles``: what it refuses, where, and that a refused program loses nothing."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import torchtpu.inspect
from torchtpu.errors import CompileLimitError, CompileLimitScopeError, InvalidFlagError


def chain(x: torch.Tensor) -> torch.Tensor:
    return ((x + 1).exp() * x).tanh()


def test_known_programs_run() -> None:
    x = torch.arange(4.0)
    expected = chain(x)
    torch.testing.assert_close(chain(x.to("tpu")).cpu(), expected)
    with torch.tpu.assert_no_compiles():
        torch.testing.assert_close(chain(x.to("tpu")).cpu(), expected)


def test_refusal_names_the_line_and_the_difference() -> None:
    chain(torch.ones(4).to("tpu")).cpu()
    y = chain(torch.ones(6).to("tpu"))
    frame = inspect.currentframe()
    assert frame is not None
    with pytest.raises(CompileLimitError) as caught, torch.tpu.assert_no_compiles():
        line = frame.f_lineno + 1
        y.cpu()
    text = str(caught.value)
    assert f"{__file__}:{line}: expected at most 0 compiles" in text
    assert "aten::add.Tensor (operator 0 of 4) got self: float32[6] where it was float32[4]" in text


def test_refused_program_loses_nothing() -> None:
    data = torch.arange(6.0)
    x = data.to("tpu")
    torch.tpu.synchronize()
    made = chain(x)
    x.mul_(3)  # an array that is replaced, and a value that is promised
    with torch.tpu.assert_no_compiles():
        for _ in range(2):
            with pytest.raises(CompileLimitError):
                made.cpu()
            with pytest.raises(CompileLimitError):
                x.sum().item()
            with pytest.raises(CompileLimitError):
                torch.tpu.synchronize()
        later = x + made  # recording goes on
    torch.testing.assert_close(x.cpu(), data * 3)
    torch.testing.assert_close(made.cpu(), chain(data))
    torch.testing.assert_close(later.cpu(), data * 3 + chain(data))


def test_training_step_that_was_refused_is_made_up_for() -> None:
    def steps(device: str, refuse: bool) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = nn.Linear(4, 3).to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        x = torch.linspace(0, 1, 8).reshape(2, 4).to(device)
        for _ in range(3):
            optimizer.zero_grad()
            loss = model(x).square().sum()
            loss.backward()
            optimizer.step()
            if refuse:
                with torch.tpu.assert_no_compiles(), pytest.raises(CompileLimitError):
                    loss.item()
        return [p.detach().cpu() for p in model.parameters()]

    for got, expected in zip(steps("tpu", True), steps("cpu", False), strict=True):
        torch.testing.assert_close(got, expected)


def test_some_are_allowed_and_limits_nest() -> None:
    def compile_one(size: int) -> None:
        (torch.ones(size).to("tpu").exp() + 1).cpu()

    with torch.tpu.limit_compiles(3) as outer:
        compile_one(2)
        with torch.tpu.limit_compiles(1) as inner:
            compile_one(3)
            compile_one(3)
            with pytest.raises(CompileLimitError, match=r"limit_compiles\(1\)"):
                compile_one(4)
        compile_one(5)
        with pytest.raises(CompileLimitError, match=r"limit_compiles\(3\)"):
            compile_one(6)
    assert (outer.num_compiles, inner.num_compiles) == (3, 1)
    compile_one(7)


def test_decorator_counts_each_call_anew() -> None:
    @torch.tpu.limit_compiles(1)
    def run(size: int) -> None:
        torch.ones(size).to("tpu").tan().cpu()

    for size in (2, 3, 4):
        run(size)


def test_other_threads_are_limited_too() -> None:
    errors: list[BaseException] = []

    def other() -> None:
        try:
            chain(torch.ones(9).to("tpu")).cpu()
        except CompileLimitError as error:
            errors.append(error)

    with torch.tpu.assert_no_compiles():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert len(errors) == 1


def test_value_refused_in_a_thread_that_ended_is_computed_by_another() -> None:
    made: list[torch.Tensor] = []

    def other() -> None:
        made.append(chain(torch.ones(10).to("tpu")))
        with torch.tpu.assert_no_compiles(), pytest.raises(CompileLimitError):
            made[0].cpu()

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    torch.testing.assert_close(made[0].cpu(), chain(torch.ones(10)))


def test_refused_backward_pass_can_be_read_afterwards() -> None:
    x = torch.ones(3, device="tpu", requires_grad=True)
    with torch.tpu.assert_no_compiles():
        x.exp().sum().backward()
        with pytest.raises(CompileLimitError):
            x.grad.cpu()  # type: ignore[union-attr]
    torch.testing.assert_close(x.grad.cpu(), torch.ones(3).exp())  # type: ignore[union-attr]


def test_loading_from_disk_is_no_compile(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    from pathlib import Path

    from torchtpu import _C
    from torchtpu.runtime import disk_cache
    from torchtpu.runtime.disk_cache import DiskCache

    disk = DiskCache(Path(str(tmp_path)), 1 << 30)
    monkeypatch.setattr(disk_cache, "of_process", lambda: disk)
    x = torch.ones(11).to("tpu")
    chain(x).cpu()
    _C.clear_programs()
    with torch.tpu.assert_no_compiles():
        torch.testing.assert_close(chain(x).cpu(), chain(torch.ones(11)))
    assert torchtpu.inspect.counters()["disk_hits"] == 1


@pytest.mark.parametrize("limit", [-1, 2.5, float("nan"), "3", None])  # nothing is more than nan: it would be no limit
def test_what_is_no_limit_is_refused(limit: Any) -> None:
    with pytest.raises(InvalidFlagError, match=f"max_compiles={limit!r}: expected an integer from 0 on"):
        torch.tpu.limit_compiles(limit)


def test_functions_that_run_after_their_call_are_refused() -> None:
    """The limit would be over before the first line of them runs."""

    def generator() -> Iterator[int]:
        yield 1

    async def coroutine() -> int:
        return 1

    for function in (generator, coroutine):
        with pytest.raises(CompileLimitScopeError, match=f"got .*{function.__name__}, a generator or coroutine"):
            torch.tpu.assert_no_compiles()(function)
