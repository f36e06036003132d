"""A program that cannot be compiled, or does not fit, changes nothing: the caller catches the error and goes on."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import jax
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from torchtpu import _C
from torchtpu.errors import CompileError, ExecutionError, OutOfMemoryError, PoisonedTensorError
from torchtpu.runtime import executables, memory


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """Ctrl-C raises, even where the shell that started the tests ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class Switch:
    """Makes every new program fail while it is on."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.calls = 0


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch, count: Any) -> Switch:
    switch, original = Switch(), executables._compile

    def compile_or_fail(program: Any, device: Any) -> Any:
        switch.calls += 1
        if switch.error is not None and not program.fills:
            raise switch.error
        return original(program, device)

    monkeypatch.setattr(executables, "_compile", compile_or_fail)
    monkeypatch.setattr(executables, "_load", lambda program, device: None)
    return switch


class Training:
    """A small training run that can be asked for one step, and for a copy of everything it holds."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)).to("tpu")
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)

    def step(self, batch: int) -> float:
        self.optimizer.zero_grad()
        x = torch.linspace(-1, 1, batch * 4).reshape(batch, 4)
        loss = F.cross_entropy(self.model(x.to("tpu")), (x.sum(1) > 0).long().to("tpu"))
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def values(self) -> list[torch.Tensor]:
        state = [v for s in self.optimizer.state.values() for v in s.values() if v.device.type == "tpu"]
        return [t.detach().cpu().clone() for t in [*self.model.state_dict().values(), *state]]


def unchanged(before: list[torch.Tensor], after: list[torch.Tensor]) -> bool:
    return len(before) == len(after) and all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_a_failed_compile_leaves_everything_as_it_was(broken):
    run = Training()
    first = run.step(32)
    before = run.values()
    broken.error = CompileError(num_nodes=3, why="too large a batch")
    with pytest.raises(CompileError, match="too large a batch"):
        run.step(64)
    broken.error = None
    assert unchanged(before, run.values())
    for _ in range(3):
        last = run.step(16)
    assert last < first


def test_the_first_step_may_fail(broken):
    run = Training()
    torch.tpu.synchronize()
    before = [p.detach().cpu().clone() for p in run.model.parameters()]
    broken.error = CompileError(num_nodes=3, why="no")
    with pytest.raises(CompileError):
        run.step(64)
    broken.error = None
    assert unchanged(before, [p.detach().cpu() for p in run.model.parameters()])
    first = run.step(16)
    assert run.step(16) < first


def test_a_batch_beyond_the_machine(count):
    """A real one: the activations of the batch do not fit, which is found before anything is donated."""
    width = 1 << 14
    model = nn.Linear(width, 8).to("tpu")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    def step(rows: int) -> float:
        optimizer.zero_grad()
        x = torch.linspace(0, 1, width).to("tpu").expand(rows, width)
        loss = model(torch.sin(x + torch.arange(rows, device="tpu")[:, None])).square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    first = step(8)
    before = [p.detach().cpu().clone() for p in model.parameters()]
    _, total = memory.info(jax.local_devices(backend="cpu")[0])
    rows = 2 * total // (4 * width)
    launches = count.launches
    with pytest.raises(OutOfMemoryError, match="lower the batch size"):
        step(rows)
    assert count.launches == launches
    assert unchanged(before, [p.detach().cpu() for p in model.parameters()])
    for _ in range(2):
        last = step(8)
    assert last < first


def test_a_result_beyond_the_machine(count):
    x = torch.ones(2, device="tpu")
    torch.tpu.synchronize()
    huge = torch.ones(1 << 40, device="tpu")
    with pytest.raises(OutOfMemoryError, match="needs 4 TiB"):
        torch.tpu.synchronize()
    del huge
    assert x.sum().item() == 2


def test_values_that_were_never_computed_are_poisoned(broken):
    x = torch.ones(3).to("tpu")
    broken.error = CompileError(num_nodes=1, why="the first reason")
    y = x + 1
    view = y[1:]
    with pytest.raises(CompileError):
        y.cpu()
    broken.error = CompileError(num_nodes=1, why="another reason")
    for use in (lambda: y * 2, lambda: view.cpu(), lambda: y.add_(1), lambda: x + view.sum(), lambda: y[0].item()):
        with pytest.raises(PoisonedTensorError, match="the first reason"):
            use()
    broken.error = None
    assert (x + 1).cpu().tolist() == [2, 2, 2]  # recorded anew, it has a value
    y.copy_(torch.zeros(3))  # and a poisoned tensor may be given one
    assert view.cpu().tolist() == [0, 0]


def test_what_was_uploaded_after_the_write_survives(broken):
    x = torch.zeros(3).to("tpu")
    x.add_(1)
    kept = x + 1
    x.copy_(torch.full((3,), 5.0))
    z = torch.zeros(3).to("tpu")
    z.add_(1)
    z.copy_(torch.full((3,), 7.0))
    z.add_(1)
    broken.error = CompileError(num_nodes=1, why="no")
    with pytest.raises(CompileError):
        kept.cpu()
    broken.error = None
    assert x.cpu().tolist() == [5, 5, 5]
    assert z.cpu().tolist() == [7, 7, 7]


def test_a_write_to_memory_that_held_nothing(broken):
    x = torch.empty(3, device="tpu")
    x.fill_(4)
    broken.error = CompileError(num_nodes=1, why="no")
    with pytest.raises(CompileError):
        x.cpu()
    broken.error = None
    assert x.cpu().tolist() == [0, 0, 0]


def test_a_rejected_view_write_restores_its_base(broken):
    base = torch.arange(6.0).to("tpu")
    base.view(2, 3)[1].mul_(10)
    base[::2] = -1
    broken.error = CompileError(num_nodes=1, why="no")
    with pytest.raises(CompileError):
        base.cpu()
    broken.error = None
    assert base.cpu().tolist() == list(range(6))


def test_arrays_that_a_failed_launch_consumed_are_poisoned(count, monkeypatch):
    """The launch itself fails, after the parameters were donated to it: they are lost, and say so."""
    run = Training()
    run.step(8)
    run.step(8)
    original = executables.launch

    def launch(executable: Any, arguments: list[Any], device: Any) -> Any:
        original(executable, arguments, device)
        raise ExecutionError(device="tpu:0", why="the chip is gone")

    kept = torch.ones(2).to("tpu")
    monkeypatch.setattr(executables, "launch", launch)
    with pytest.raises(ExecutionError, match="the chip is gone"):
        run.step(8)
    monkeypatch.undo()
    assert kept.cpu().tolist() == [1, 1]
    with pytest.raises(PoisonedTensorError, match="the chip is gone"):
        run.model[0].weight.detach().cpu()
    run.model[0].weight.data.copy_(torch.zeros(8, 4))  # from a checkpoint
    assert run.model[0].weight.detach().cpu().sum() == 0


def test_interrupting_a_compile_is_clean(broken, monkeypatch):
    run = Training()
    run.step(8)
    before = run.values()
    original = executables.lowered

    def interrupted(*args: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return original(*args)

    monkeypatch.setattr(executables, "lowered", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run.step(12)
    monkeypatch.setattr(executables, "lowered", original)
    assert unchanged(before, run.values())
    run.step(12)
    assert not unchanged(before, run.values())


def test_a_step_that_raises_does_not_disturb_the_next(count):
    run = Training()

    def closure() -> torch.Tensor:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run.optimizer.step(closure)
    for _ in range(4):
        run.step(8)
    assert count.programs <= 2
    assert count.launches >= 4


def test_an_error_of_shape_changes_nothing(count, caplog):
    x = torch.ones(2, 3).to("tpu")
    x.add_(1)
    with pytest.raises(RuntimeError, match=r"\[2, 3\] X \[2, 3\]"):
        x @ x
    with pytest.raises(RuntimeError, match="broadcast"):
        x.add_(torch.ones(4).to("tpu"))
    assert x.cpu().unique().tolist() == [2]
    assert caplog.records == []


def test_dropped_poison_frees_its_memory(broken):
    live = _C.memory_stats(0)["num_live"]
    broken.error = CompileError(num_nodes=1, why="no")
    x = torch.ones(64, device="tpu")
    with pytest.raises(CompileError):
        x.cpu()
    del x
    assert _C.memory_stats(0)["num_live"] == live


def test_optimizer_state_that_cannot_be_made_leaves_parameters_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    original = executables._compile

    def refuse_fills(program: Any, device: Any) -> Any:
        if program.fills:
            raise CompileError(num_nodes=len(program.nodes), why="no room for state")
        return original(program, device)

    parameter = nn.Parameter(torch.ones(3, device="tpu"))
    optimizer = torch.optim.AdamW([parameter], lr=0.1, weight_decay=0.5)
    (parameter * parameter).sum().backward()
    torch.tpu.synchronize()
    with monkeypatch.context() as patch:
        patch.setattr(executables, "_compile", refuse_fills)
        patch.setattr(executables, "_load", lambda program, device: None)
        with pytest.raises(CompileError, match="no room for state"):
            optimizer.step()
    assert parameter.tolist() == [1, 1, 1]  # not decayed by half a step
    fresh = torch.optim.AdamW([parameter], lr=0.1, weight_decay=0.5)
    fresh.step()
    assert parameter.tolist() == pytest.approx([0.85] * 3)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_interrupt_at_a_launch_loses_nothing(monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    """Ctrl-C that comes when XLA has taken the parameters, and their successors are not in place yet."""
    torch.manual_seed(0)
    reference = nn.Linear(4, 2)
    model = nn.Linear(4, 2).to("tpu")
    model.load_state_dict(reference.state_dict())

    def steps(model: nn.Module, number: int) -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x = torch.ones(3, 4).to(model.weight.device)
        for _ in range(number):
            optimizer.zero_grad()
            loss = (model(x) ** 2).mean()
            loss.backward()
            optimizer.step()
            loss.item()  # here the step runs

    steps(model, 3)
    original = executables.launch

    def interrupted(executable: Any, *arguments: Any) -> Any:
        if len(executable.program.nodes) < 5:  # not yet the step
            return original(executable, *arguments)
        monkeypatch.setattr(executables, "launch", original)
        if moment == "before":
            signal.raise_signal(signal.SIGINT)
        outputs = original(executable, *arguments)
        if moment == "after":
            signal.raise_signal(signal.SIGINT)
        return outputs

    monkeypatch.setattr(executables, "launch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        steps(model, 1)
    steps(model, 2)
    steps(reference, 6)
    torch.testing.assert_close(model.weight.detach().cpu(), reference.weight.detach())
