"""torch.func, forward-mode differentiation and PyTorch's own gradient checks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import func, nn
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.nn import functional as F


def values(device: str, *shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(device)


def square_sum(x: torch.Tensor) -> torch.Tensor:
    return (x.sin() * x).sum()


def _model(device: str) -> tuple[nn.Module, dict[str, torch.Tensor]]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).to(device)
    return model, {name: p.detach() for name, p in model.named_parameters()}


def _per_sample_gradients(device: str) -> Any:
    model, parameters = _model(device)

    def loss(parameters: dict[str, torch.Tensor], x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(func.functional_call(model, parameters, (x[None],)), target[None])

    targets = torch.tensor([0, 1, 1, 0], device=device)
    return func.vmap(func.grad(loss), in_dims=(None, 0, 0))(parameters, values(device, 4, 3), targets)


def _ensemble(device: str) -> torch.Tensor:
    models = [_model(device)[0] for _ in range(2)]
    parameters, buffers = func.stack_module_state(models)
    return func.vmap(lambda p, b, x: func.functional_call(models[0], (p, b), (x,)), in_dims=(0, 0, None))(
        parameters, buffers, values(device, 5, 3))


def _dual(device: str) -> torch.Tensor:
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(values(device, 4), values(device, 4, seed=1))
        tangent = forward_ad.unpack_dual(F.softmax(dual.exp(), 0)).tangent
    assert tangent is not None
    return tangent


def _linear_map(x: torch.Tensor) -> torch.Tensor:
    return x.cumsum(0).tanh() * x[0]


TRANSFORMS: dict[str, Callable[[str], Any]] = {
    "grad": lambda d: func.grad(square_sum)(values(d, 4)),
    "grad_and_value": lambda d: func.grad_and_value(square_sum)(values(d, 4)),
    "grad of grad": lambda d: func.grad(lambda x: func.grad(square_sum)(x).sum())(values(d, 4)),
    "vmap": lambda d: func.vmap(torch.dot)(values(d, 3, 4), values(d, 3, 4, seed=1)),
    "vmap over columns": lambda d: func.vmap(torch.mv, in_dims=(None, 1), out_dims=1)(values(d, 3, 4), values(d, 4, 5)),
    "vmap in pieces": lambda d: func.vmap(torch.cumsum, in_dims=(0, None), chunk_size=2)(values(d, 5, 4), 0),
    "jvp": lambda d: func.jvp(_linear_map, (values(d, 4),), (values(d, 4, seed=1),)),
    "vjp": lambda d: func.vjp(_linear_map, values(d, 4))[1](values(d, 4, seed=1)),
    "jacrev": lambda d: func.jacrev(_linear_map)(values(d, 3)),
    "jacfwd": lambda d: func.jacfwd(_linear_map)(values(d, 3)),
    "hessian": lambda d: func.hessian(square_sum)(values(d, 3)),
    "functional_call": lambda d: func.functional_call(*_model(d), (values(d, 2, 3),)),
    "functionalize": lambda d: func.functionalize(lambda x: x.clone().add_(1).mul_(2))(values(d, 3)),
    "per-sample gradients": _per_sample_gradients,
    "ensemble": _ensemble,
    "forward mode": _dual,
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_the_values_of(name):
    ours, theirs = (torch.utils._pytree.tree_map(
        lambda x: x.detach().cpu() if isinstance(x, torch.Tensor) else x, TRANSFORMS[name](device)) for device in ("tpu", "cpu"))
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_randomness_under_vmap():
    x = torch.ones(6, 50, device="tpu")
    different = func.vmap(lambda row: F.dropout(row, 0.5), randomness="different")(x).cpu()
    same = func.vmap(lambda row: row + torch.rand(50, device="tpu"), randomness="same")(x).cpu()
    assert len({tuple(row.tolist()) for row in different}) == 6
    assert len({tuple(row.tolist()) for row in same}) == 1
    with pytest.raises(RuntimeError, match="randomness"):
        func.vmap(lambda row: row + torch.rand(50, device="tpu"))(x)


def test_gradients_through_vmap_of_random_numbers():
    x = torch.ones(3, 8, device="tpu")
    grads = func.vmap(func.grad(lambda row: F.dropout(row, 0.5).sum()), randomness="different")(x).cpu()
    assert set(grads.flatten().tolist()) <= {0.0, 2.0}


CHECKED: dict[str, tuple[Callable[..., torch.Tensor], tuple[tuple[int, ...], ...]]] = {
    "matmul": (torch.matmul, ((2, 3), (3, 2))),
    "softmax": (lambda x: x.softmax(-1), ((2, 3),)),
    "layer_norm": (lambda x, w: F.layer_norm(x, (3,), w), ((2, 3), (3,))),
    "conv2d": (F.conv2d, ((1, 2, 4, 4), (2, 2, 2, 2))),
    "logsumexp": (lambda x: x.logsumexp(0), ((3, 2),)),
    "norm": (lambda x: torch.linalg.vector_norm(x, 3), ((4,),)),
    "cumprod": (lambda x: x.cumprod(0), ((4,),)),
    "index": (lambda x: x[[0, 2, 2]] ** 3, ((3, 2),)),
    "inverse": (lambda x: torch.linalg.inv(x @ x.mT + torch.eye(2, dtype=x.dtype, device=x.device)), ((2, 2),)),
    "gelu": (F.gelu, ((4,),)),
    "avg_pool": (lambda x: F.avg_pool2d(x, 2) ** 2, ((1, 1, 4, 4),)),
    "bilinear": (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear") ** 2, ((1, 1, 2, 2),)),
}


@pytest.mark.parametrize("name", CHECKED)
def test_gradcheck_in_double_precision(name):
    function, shapes = CHECKED[name]
    inputs = [values("tpu", *shape, seed=i).double().requires_grad_() for i, shape in enumerate(shapes)]
    assert gradcheck(function, inputs, fast_mode=True)
    assert gradgradcheck(function, inputs, fast_mode=True)
