"""Every operator that may be padded gives the CPU's numbers whatever the padding holds, and others refuse."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.compile.padded import Dims, integers, randn, run_padded
from torchtpu.compile import buckets, neutral, neutral_views  # noqa: F401 - the rules of views are registered by their module
from torchtpu.errors import PaddingError
from torchtpu.graph.overloads import key_of
from torchtpu.rules import find

aten = torch.ops.aten
pytestmark = pytest.mark.usefixtures("without_gradients")


@pytest.fixture
def poison(monkeypatch) -> None:
    """What should be zeros in the padding is NaN, or a number far out of any range."""
    def poisoned(tensor: torch.Tensor, amounts: list[int]) -> torch.Tensor:
        garbage = math.nan if tensor.is_floating_point() else True if tensor.dtype == torch.bool else 10**6
        return torch.constant_pad_nd(tensor, amounts, garbage)

    monkeypatch.setattr(buckets, "_filled_up", poisoned)


@pytest.fixture
def padded_ops(monkeypatch) -> set[str]:
    """The operators that rules were asked of."""
    seen: set[str] = set()

    def spy(node: torch.fx.Node, find: Any = neutral.rule_of) -> Any:
        seen.add(key_of(node.target))
        return find(node)

    monkeypatch.setattr(neutral, "rule_of", spy)
    return seen


X, Y = randn(5, 3), randn(5, 3)
BATCH: Dims = {0: (0,)}
BOTH: Dims = {0: (0,), 1: (0,)}


@dataclass(frozen=True, eq=False)
class Case:
    """A call of an operator, with dimensions of some arguments open."""

    op: str
    function: Callable[..., Any]
    inputs: tuple[torch.Tensor, ...]
    dims: Dims


def case(op: str, function: Callable[..., Any], *inputs: torch.Tensor, dims: Dims = BATCH) -> Case:
    return Case(f"aten::{op}", function, inputs or (X,), dims)


def attention(q: torch.Tensor, kv: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, kv[0], kv[1])


def biased_attention(qkv: torch.Tensor) -> torch.Tensor:
    bias = qkv[0, :, :1] @ qkv[1, :, :1].mT
    place = torch.arange(qkv.shape[3], device=qkv.device)
    allowed = bias.ge(0) | (place[:, None] == place)
    return F.scaled_dot_product_attention(*qkv.unbind(0), bias) + F.scaled_dot_product_attention(*qkv.unbind(0), allowed)


QKV = randn(3, 2, 4, 5, 8)
ATTENTION = "_scaled_dot_product_fused_attention_overrideable"
CASES = [
    case("clone", lambda x: x.clone() + 0),
    case("_to_copy", lambda x: x.to(torch.bfloat16)),
    case("masked_fill.Tensor", lambda x: x.masked_fill(x > 0, torch.zeros((), device=x.device))),
    case("hardswish", F.hardswish),
    case("alias", lambda x: (x * 2).detach() + x),
    case("zeros", lambda x: x + torch.zeros(x.shape[0], 1, device=x.device)),
    case("ones", lambda x: x + torch.ones(x.shape[0], 1, device=x.device)),
    case("new_zeros", lambda x: x + x.new_zeros(x.shape[0], 1)),
    case("new_ones", lambda x: x + x.new_ones(x.shape[0], 1)),
    case("new_full", lambda x: x + x.new_full((x.shape[0], 1), 2)),
    case("zeros_like", lambda x: x + torch.zeros_like(x)),
    case("ones_like", lambda x: x + torch.ones_like(x)),
    case("full", lambda x: x + torch.full((x.shape[0], 1), 2.0, device=x.device)),
    case("full_like", lambda x: x + torch.full_like(x, 2.0)),
    case("arange", lambda x: x + torch.arange(x.shape[0], device=x.device)[:, None]),
    case("arange.start", lambda x: x + torch.arange(2, x.shape[0] + 2, device=x.device)[:, None]),
    case("arange.start_step", lambda x: x + torch.arange(0, 2 * x.shape[0], 2, device=x.device)[:, None]),
    case("tril", lambda x: x.tril(), dims={0: (0, 1)}),
    case("triu", lambda x: x.triu(1), dims={0: (0, 1)}),
    case("mm", lambda x, w: x @ w, X, randn(3, 4)),
    case("mm", lambda x, w: x @ w, randn(3, 5), randn(5, 4), dims={0: (1,), 1: (0,)}),
    case("mm", lambda x, w: x @ w, randn(4, 3), randn(3, 5), dims={1: (1,)}),
    case("bmm", torch.bmm, randn(5, 2, 3), randn(5, 3, 4), dims=BOTH),
    case("bmm", torch.bmm, randn(2, 5, 6), randn(2, 6, 7), dims={0: (1, 2), 1: (1, 2)}),
    case("addmm", torch.addmm, randn(4), X, randn(3, 4), dims={1: (0,)}),
    case("addmm", torch.addmm, randn(5, 4), X, randn(3, 4), dims=BOTH),
    case("baddbmm", torch.baddbmm, randn(5, 1, 4), randn(5, 2, 3), randn(5, 3, 4), dims={0: (0,), 1: (0,), 2: (0,)}),
    case("convolution", F.conv2d, randn(5, 3, 6, 6), randn(4, 3, 3, 3)),
    case("convolution", lambda x, w: F.conv2d(x, w, stride=2, padding=2, dilation=2), randn(2, 3, 9, 11), randn(4, 3, 3, 3),
         dims={0: (2, 3)}),
    case("convolution", F.conv_transpose1d, randn(5, 3, 6), randn(3, 4, 3)),
    case(ATTENTION, lambda x: F.scaled_dot_product_attention(*x), QKV.transpose(1, 3).contiguous(), dims={0: (1,)}),
    case(ATTENTION, lambda x: F.scaled_dot_product_attention(*x), QKV, dims={0: (3,)}),
    case(ATTENTION, lambda x: F.scaled_dot_product_attention(*x, is_causal=True), QKV, dims={0: (3,)}),
    case(ATTENTION, biased_attention, QKV, dims={0: (3,)}),
    case(ATTENTION, attention, QKV[0, :, :, :3].contiguous(), QKV[1:], dims={1: (3,)}),
    case(ATTENTION, attention, QKV[0, :, :, :3].contiguous(), QKV[1:], dims={0: (2,)}),
    case("embedding", F.embedding, integers(5, 7), randn(6, 4), dims={0: (0, 1)}),
    case("index_select", lambda x, i: x.index_select(1, i), X, integers(7, high=3), dims={0: (0,), 1: (0,)}),
    case("gather", lambda x: x.gather(1, x.argsort(1))),
    case("native_layer_norm", lambda x: F.layer_norm(x, (3,))),
    case("_fused_rms_norm", lambda x: F.rms_norm(x, (3,))),
    case("native_group_norm", lambda x: F.group_norm(x, 2), randn(5, 4, 3)),
    case("_native_batch_norm_legit_no_training", lambda x, m, v: F.batch_norm(x, m, v), randn(5, 3, 4), randn(3), randn(3).exp(),
         dims={0: (0, 2)}),
    case("_softmax", lambda x: x.softmax(0)),
    case("_softmax", lambda x: x.softmax(1)),
    case("_log_softmax", lambda x: x.log_softmax(0)),
    *(case(op, lambda x, op=op: getattr(torch, op)(x, 0)) for op in ("cumsum", "cumprod", "logcumsumexp", "cummax", "cummin")),
    case("cumsum", lambda x: x.cumsum(1)),
    case("sort", lambda x: x.sort(1)),
    case("sort.stable", lambda x: x.sort(dim=1, stable=True)),
    case("glu", F.glu, randn(5, 4)),
    case("repeat", lambda x: x.repeat(2, 1, 3)),
    case("avg_pool2d", lambda x: F.avg_pool2d(x, 2), randn(5, 3, 4, 4)),
    case("max_pool2d_with_indices", lambda x: F.max_pool2d(x, 2), randn(5, 3, 4, 4)),
    case("topk", lambda x: x.topk(2, 1)),
    case("flip", lambda x: x.flip(1)),
    case("roll", lambda x: x.roll(1, 1)),
    case("constant_pad_nd", lambda x: F.pad(x, (1, 2))),
    case("sum", lambda x: x.sum()),
    case("sum.dim_IntList", lambda x: (x.sum(0), x.sum(1, keepdim=True), x.sum((0, 1)))),
    case("prod", lambda x: x.prod()),
    case("prod.dim_int", lambda x: x.prod(0)),
    case("mean", lambda x: x.mean()),
    case("mean.dim", lambda x: (x.mean(0), x.mean(1), x.mean((0, 1), keepdim=True))),
    case("mean.dim", lambda x: x.mean(0), X.bfloat16()),
    case("amax", lambda x: (x.amax(0), x.amax())),
    case("amax", lambda x: x.amax(0), -integers(5, 3) - 1),
    case("amin", lambda x: x.amin(0)),
    case("max", lambda x: x.max()),
    case("min", lambda x: x.min()),
    case("max.dim", lambda x: x.max(0)),
    case("min.dim", lambda x: x.min(0)),
    case("logsumexp", lambda x: x.logsumexp(0)),
    case("any", lambda x: x.any(), X > 9),
    case("any.dim", lambda x: x.any(0), X > 1),
    case("any.dims", lambda x: x.any((0, 1)), X > 9),
    case("all", lambda x: (x > -9).all()),  # NaN is not
    case("all.dim", lambda x: (x > -9).all(0)),
    case("all.dims", lambda x: (x > -9).all((0, 1))),
    case("argmax", lambda x: x.argmax(1)),
    case("argmin", lambda x: x.argmin(1)),
    case("median.dim", lambda x: x.median(1)),
    case("var.correction", lambda x: x.var(1)),
    case("std.correction", lambda x: x.std(1)),
    case("var_mean.correction", lambda x: torch.var_mean(x, 1)),
    case("linalg_vector_norm", lambda x: torch.linalg.vector_norm(x, 2, 1)),
    case("view", lambda x: x.view(-1)),
    case("view", lambda x: (x * 2).view(4, -1), randn(4, 5, 6), dims={0: (1,)}),
    case("view", lambda x: (x * 2).view(x.shape[0] * x.shape[1], 2, 3).cos().view(4, x.shape[1], 6), randn(4, 5, 6),
         dims={0: (1,)}),
    case("view", lambda x: (x * 2).flatten(), randn(4, 5, 6), dims={0: (0,)}),
    case("_unsafe_view", lambda x: x.T.reshape(-1).reshape(3, -1) * 2),
    case("permute", lambda x: x.permute(1, 0) * 2),
    case("unsqueeze", lambda x: x.unsqueeze(-1) * x.unsqueeze(1)),
    case("squeeze.dims", lambda x: x.squeeze((0, 2)) * 2, randn(1, 5, 1, 3), dims={0: (1,)}),
    case("expand", lambda x, y: x.expand(y.shape[0], 3) + y, randn(1, 3), Y, dims={1: (0,)}),
    case("slice.Tensor", lambda x: x[1:] * x[:-1]),
    case("slice.Tensor", lambda x: x[:3] * x[2:5, 1:2], randn(9, 3)),
    case("select.int", lambda x: x[0] + x[:, 1][2]),
    case("select.int", lambda x: x[-1] * 2),
    case("split_with_sizes", lambda x: x.split([1, 2], 1)[1] * 2),
    case("cat", lambda x, y: torch.cat([y, x]), X, randn(2, 3)),
    case("cat", lambda x, y: torch.cat([x, y], 1), X, Y, dims=BOTH),
    case("stack", lambda x, y: torch.stack([x, y], 1), X, Y, dims=BOTH),
]


SIMPLE = [one for one in CASES if one.dims is BATCH and all(x is X for x in one.inputs)]
SEVERAL = [SIMPLE[k : k + 16] for k in range(0, len(SIMPLE), 16)] + [[one] for one in CASES if one not in SIMPLE]


@pytest.mark.parametrize("cases", SEVERAL, ids=lambda cases: ",".join(one.op.removeprefix("aten::") for one in cases))
def test_operators(cases, poison, padded_ops):
    """Those of one tensor in groups, so that there is less to compile."""
    inputs = cases[0].inputs
    results = run_padded(lambda *given: [one.function(*given) for one in cases], inputs, cases[0].dims)
    for one, got in zip(cases, results, strict=True):
        torch.testing.assert_close(
            got, one.function(*inputs), rtol=1e-4, atol=1e-5, check_stride=True, msg=lambda text, one=one: f"{one.op}: {text}")
        assert one.op in padded_ops


def test_every_rule_has_a_case():
    assert {one.op for one in CASES} >= neutral._RULES.keys()


SLOW_TO_COMPILE = {"aten::digamma", "aten::lgamma", "aten::i0", "aten::erfinv"}


def unary_pointwise(x: torch.Tensor) -> list[Any]:
    """Operators with that tag that need nothing but this tensor; those of several tensors differ in what is broadcast."""
    packets = (packet for name in dir(aten) if isinstance(packet := getattr(aten, name), torch._ops.OpOverloadPacket))
    defaults = [packet.default for packet in packets if "default" in packet.overloads()]
    return [
        op for op in defaults if torch.Tag.pointwise in op.tags and not op._schema.is_mutable and find(key_of(op))
        and not key_of(op).startswith("aten::special") and key_of(op) not in SLOW_TO_COMPILE and takes(op, x)]


def takes(op: Any, x: torch.Tensor) -> bool:
    try:
        op(x)
    except RuntimeError:
        return False
    return True


def test_pointwise_operators(poison, padded_ops):
    x = X.abs().clamp(0.1, 0.9)
    taken = unary_pointwise(x)
    results = run_padded(lambda x: [op(x) for op in taken], (x,), BATCH)
    for got, op in zip(results, taken, strict=True):
        torch.testing.assert_close(got, op(x), rtol=1e-4, atol=1e-5, equal_nan=True, msg=lambda text, op=op: f"{op}: {text}")
    assert len(taken) > 50
    assert {"aten::exp", "aten::sigmoid", "aten::gelu"} <= padded_ops


@pytest.mark.parametrize("function", [
    lambda x: x + x[:, :1] * torch.arange(3, device=x.device) - x[1],
    lambda x: torch.where(x > 0, x, x.T.contiguous().T).clamp(x.amin(0), x.amax(0)),
    lambda x: x * x.shape[0] + x / x.shape[0] - (x.shape[0] + 1),
    lambda x: (x[1:] - x[:-1]).sum(0) / (x.shape[0] - 1),
    lambda x: (torch.cat([x[:1], x]) * 2, x.shape[0] + 1),
    lambda x: (x.T @ x, x @ x.T, (x @ x.T).softmax(-1) @ x),
    lambda x: x.softmax(0)[-1],
], ids=range(7))
def test_compositions(function, poison):
    torch.testing.assert_close(run_padded(function, (X,), BATCH), function(X), rtol=1e-4, atol=1e-5)


def test_two_sizes_at_once(poison):
    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(F.linear(x, w), (3,)).softmax(1) * x.shape[1] + x.mean((0, 1))

    inputs = randn(5, 7, 3), randn(3, 3)
    torch.testing.assert_close(run_padded(function, inputs, {0: (0, 1)}), function(*inputs), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("op", "function", "inputs", "dims"), [
    ("rand_like", torch.rand_like, (X,), BATCH),
    ("argmax", lambda x: x.argmax(0), (X,), BATCH),
    ("var.correction", lambda x: x.var(0), (X,), BATCH),
    ("sort", lambda x: x.sort(0), (X,), BATCH),
    ("topk", lambda x: x.topk(2, 0), (X,), BATCH),
    ("flip", lambda x: x.flip(0), (X,), BATCH),
    ("native_layer_norm", lambda x: F.layer_norm(x, (x.shape[1],)), (X,), {0: (1,)}),
    ("native_group_norm", lambda x: F.group_norm(x, 2), (randn(2, 4, 5),), {0: (2,)}),
    ("convolution", F.conv1d, (randn(2, 5, 6), randn(4, 5, 3)), {0: (1,), 1: (1,)}),
    ("convolution", F.conv_transpose1d, (randn(2, 3, 5), randn(3, 4, 3)), {0: (2,)}),
    ("embedding", lambda w: F.embedding(torch.arange(3, device=w.device), w), (X,), BATCH),
    ("cat", lambda x, y: torch.cat([x, y]), (X, Y[:2]), BATCH),
    ("slice.Tensor", lambda x: x[-2:] * 2, (X,), BATCH),
    ("slice.Tensor", lambda x: x[::2] * 2, (X,), BATCH),
    ("view", lambda x: x.view(3, -1).cos().view(-1, 2), (randn(12),), BATCH),
    ("cumsum", lambda x: x.flatten().cumsum(0), (X,), {0: (1,)}),
    ("linalg_vector_norm", lambda x: x.norm(dim=0), (X,), BATCH),
    ("full", lambda x: torch.full((3,), x.shape[0], device=x.device) + x, (X,), BATCH),
    ("grid_sampler_2d", lambda x: F.grid_sample(x, x[..., :2], align_corners=False), (randn(5, 3, 4, 4),), BATCH),
], ids=lambda value: value if isinstance(value, str) else "")
def test_refused(op, function, inputs, dims):
    with pytest.raises(PaddingError, match=f"aten::{op}:"):
        run_padded(function, inputs, dims)
