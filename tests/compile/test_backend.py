"""``torch.compile`` on the device: the same numbers as without it, and as few programs."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._higher_order_ops import scan, while_loop
from torch.utils.checkpoint import checkpoint

import torchtpu.inspect
from tests.compile.compare import compare, randn, same
from torchtpu.compile import region

# Where a test has to do with what is not compiled; that it is told, test_parts.py asserts.
partly_compiled = pytest.mark.filterwarnings("ignore::torchtpu.compile.telling.CompileWarning")


class Net(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(dropout), nn.LayerNorm(16), nn.Linear(16, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def train(model: nn.Module, run: Callable[..., torch.Tensor], device: str, steps: int = 4) -> list[float]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(1)
    losses = []
    for _ in range(steps):
        x, y = torch.randn(32, 8, generator=generator), torch.randint(0, 4, (32,), generator=generator)
        optimizer.zero_grad()
        loss = F.cross_entropy(run(x.to(device)), y.to(device))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("options", [
    {"backend": "tpu"}, {}, {"backend": "inductor"}, {"mode": "reduce-overhead"}, {"backend": "tpu", "mode": "max-autotune"},
    {"backend": "tpu", "fullgraph": True}, {"backend": "tpu", "dynamic": True}], ids=str)
def test_training(options, count):
    torch.manual_seed(0)
    model = Net()
    ours = copy.deepcopy(model).to("tpu")
    losses = train(ours, torch.compile(ours, **options), "tpu")
    assert losses == pytest.approx(train(model, model, "cpu"), rel=1e-4)
    assert count.programs == 1


def test_a_step_is_one_program_of_few_nodes():
    torch.manual_seed(0)
    ours = Net().to("tpu")
    train(ours, torch.compile(ours, backend="tpu"), "tpu")
    newest = [p for p in torchtpu.inspect.programs() if not p.fills][-1]
    assert newest.num_nodes < 20  # forward and backward are one each; the loss and the optimizer are eager


def test_cpu_models_stay_with_inductor(monkeypatch):
    seen = []
    monkeypatch.setattr("torchtpu.compile.tpu_backend", lambda *_: seen.append(1))
    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", lambda module, inputs, **_: module.forward)
    assert torch.compile(lambda x: x + 1)(torch.ones(2)).tolist() == [2, 2]
    assert not seen


@partly_compiled
def test_graph_breaks_and_python_branches():
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        torch._dynamo.graph_break()
        return y + 1 if y.sum().item() > 0 else y - 1

    same(function, randn(4, 4))
    same(function, -randn(4, 4))


def test_fullgraph_refuses_a_break():
    def function(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return x

    with pytest.raises(torch._dynamo.exc.Unsupported):
        torch.compile(function, backend="tpu", fullgraph=True)(torch.ones(2).to("tpu"))


def test_mutated_inputs():
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        y[1:].mul_(x[:-1])
        return x * y

    same(function, randn(4, 3), randn(4, 3))


def test_views_and_aliased_outputs():
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x * 2
        return x.t(), y, y[0], x.view(-1), y.transpose(0, 1)

    x = randn(3, 4)
    same(function, x)
    ours = x.to("tpu")
    transposed, y, row, flat, turned = torch.compile(function, backend="tpu")(ours)
    assert transposed._is_view() and transposed.untyped_storage()._cdata == ours.untyped_storage()._cdata
    assert flat.untyped_storage()._cdata == ours.untyped_storage()._cdata
    assert row.untyped_storage()._cdata == y.untyped_storage()._cdata == turned.untyped_storage()._cdata
    y.zero_()
    assert turned.abs().sum().item() == 0


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
def test_without_gradients(mode):
    with mode():
        same(lambda x, w: F.softmax(x @ w, -1), randn(4, 8), randn(8, 3))


def test_gradients_of_functions():
    same(lambda x, w: (F.softmax(x @ w, -1), x.exp()), randn(4, 8, grad=True), randn(8, 3, grad=True))


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return grad * x * 7  # not the gradient, so that it shows


def test_custom_autograd_function():
    same(lambda x: Cube.apply(x.sin()).sum(0), randn(4, 3, grad=True))


@pytest.mark.parametrize("inside", [True, False])
def test_autocast(inside):
    model = Net().to("tpu")
    x = randn(4, 8).to("tpu")

    def within(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("tpu", torch.bfloat16):
            return model(x)

    if inside:
        got = torch.compile(within, backend="tpu")(x)
    else:
        with torch.autocast("tpu", torch.bfloat16):
            got = torch.compile(model, backend="tpu")(x)
    assert got.dtype == torch.bfloat16
    torch.testing.assert_close(got.cpu(), within(x).cpu(), rtol=2e-2, atol=2e-2)


def test_dropout_draws_what_eager_code_draws():
    x = torch.ones(64, 64).to("tpu")

    def function(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(F.dropout(x, 0.3) + torch.rand_like(x), 0.5)

    torch.manual_seed(3)
    eager = [function(x).cpu() for _ in range(2)]
    torch.manual_seed(3)
    compiled = torch.compile(function, backend="tpu")
    for want in eager:
        assert torch.equal(compiled(x).cpu(), want)


@pytest.mark.parametrize("preserve", [True, False])
def test_checkpointing(preserve):
    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return checkpoint(lambda x: (x @ w).relu() @ w, x, use_reentrant=False, preserve_rng_state=preserve)

    same(function, randn(4, 8, grad=True), randn(8, 8, grad=True))


def test_checkpointed_dropout_has_the_gradient_of_its_own_mask():
    def function(x: torch.Tensor) -> torch.Tensor:
        return checkpoint(lambda x: F.dropout(x, 0.5), x, use_reentrant=False)

    x = torch.ones(32, 32).to("tpu").requires_grad_()
    out = torch.compile(function, backend="tpu")(x)
    out.sum().backward()
    assert x.grad is not None
    assert torch.equal(out.detach().cpu(), x.grad.cpu())


@partly_compiled
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # Dynamo's own, on every device
def test_compiled_optimizer_and_whole_step(count):
    torch.manual_seed(0)
    model = Net()
    ours = copy.deepcopy(model).to("tpu")
    x, y = randn(32, 8), torch.arange(32) % 4

    def losses(model: nn.Module, device: str, wrap: Callable[[Any], Any]) -> list[float]:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        a, b = x.to(device), y.to(device)

        def step() -> torch.Tensor:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(a), b)
            loss.backward()
            optimizer.step()
            return loss.detach()

        run = wrap(step)
        return [run().item() for _ in range(4)]

    got = losses(ours, "tpu", lambda step: torch.compile(step, backend="tpu"))
    assert got == pytest.approx(losses(model, "cpu", lambda step: step), rel=1e-4)


def test_compiled_optimizer_step():
    parameters = [nn.Parameter(randn(4, 4).to("tpu")) for _ in range(3)]
    mirror = [nn.Parameter(p.detach().cpu()) for p in parameters]
    optimizers = torch.optim.AdamW(parameters, lr=0.1), torch.optim.AdamW(mirror, lr=0.1)
    step = torch.compile(optimizers[0].step, backend="tpu")
    for i in range(4):
        for p, q in zip(parameters, mirror, strict=True):
            q.grad = torch.full((4, 4), float(i))
            p.grad = q.grad.to("tpu")
        step()
        optimizers[1].step()
    compare(parameters, mirror)


def test_module_hooks():
    model = Net().to("tpu")
    model.layers[0].register_forward_hook(lambda _module, _inputs, out: out * 2)
    x = randn(4, 8).to("tpu")
    compare(torch.compile(model, backend="tpu")(x), model(x).cpu())


def test_function_transforms_inside():
    same(lambda x: torch.func.vmap(torch.func.grad(lambda v: (v**3).sum()))(x), randn(4, 3))
    same(lambda x: torch.func.jvp(torch.sin, (x,), (torch.ones_like(x),)), randn(4, 3))


def test_constants_and_numbers():
    same(lambda x: x * torch.tensor([1.0, 2.0, 3.0], device=x.device) + 5, randn(4, 3))
    scale = torch.tensor(3.0)
    same(lambda x: x * scale, randn(4, 3))


def test_numbers_that_change():
    compiled = torch.compile(lambda x, factor: x * factor, backend="tpu")
    x = torch.ones(3).to("tpu")
    for factor in (1.5, 2.5, 3.5, 4.5):
        assert compiled(x, factor).tolist() == [factor] * 3


@pytest.mark.parametrize("dynamic", [True, None])
def test_sizes_that_change(dynamic):
    def function(x: torch.Tensor) -> torch.Tensor:
        return (x.reshape(-1) * x.shape[0]).sum() + x.new_zeros(x.shape[0] + 1).sum()

    compiled = torch.compile(function, backend="tpu", dynamic=dynamic)
    for rows in (3, 5, 8, 13):
        x = randn(rows, 4)
        torch.testing.assert_close(compiled(x.to("tpu")).cpu(), function(x))


def test_gradients_of_sizes_that_change():
    compiled = torch.compile(lambda x: (F.softmax(x, -1) * x.shape[0]).square(), backend="tpu", dynamic=True)
    for rows in (3, 5, 8):
        x = randn(rows, 4, grad=True)
        ours = x.detach().to("tpu").requires_grad_()
        compiled(ours).sum().backward()
        (F.softmax(x, -1) * rows).square().sum().backward()
        compare(ours.grad, x.grad)


@partly_compiled
def test_data_dependent_shapes():
    same(lambda x: x[x > 0].sum() + x.nonzero().shape[0], randn(4, 4))


@partly_compiled
def test_work_of_two_devices():
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.to("cpu") * 2 + y

    x, y = randn(3), randn(3)
    compiled = torch.compile(function, backend="tpu")
    torch.testing.assert_close(compiled(x.to("tpu"), y), x * 2 + y)


def test_graphs_of_one_content_have_one_name():
    def traced(shape: tuple[int, ...]) -> str:
        names: list[str] = []
        torch._dynamo.reset()
        before = set(region._regions)
        torch.compile(lambda x: x.sin() + 1, backend="tpu")(torch.ones(shape).to("tpu"))
        names += sorted(set(region._regions) - before)
        return " ".join(names)

    first = traced((3, 5))
    assert len(first) == 32
    assert traced((3, 5)) == ""  # known
    assert traced((5, 3)) not in ("", first)


def test_eager_control_flow():
    x = randn(3, 2).abs()
    ours = x.to("tpu")
    compare(torch.cond(ours.sum() > 0, torch.sin, torch.cos, (ours,)), x.sin())
    compare(scan(lambda c, v: (c + v, c * v), ours.new_zeros(2), ours)[0], x.sum(0))
    compare(while_loop(lambda x: x.sum() < 50, lambda x: (x * 2,), (ours,)), while_loop(
        lambda x: x.sum() < 50, lambda x: (x * 2,), (x,)))
