"""flex_attention: scores that a user's function changes and masks, against the same written out in float64 on the CPU."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.attention import flex_attention as flex
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention

import torchtpu.inspect
from torchtpu.rules import flex_attention as rules

SHAPE = B, H, K, Q, N, D = 2, 4, 2, 24, 40, 8  # batch, heads, heads of keys and values, queries, keys, features


def causal(b, h, q, k):
    return q >= k


def documents(b, h, q, k):
    return q // 7 == k // 7


def some_rows_without_keys(b, h, q, k):
    return q > k + 10 + b


def slopes(score, b, h, q, k, slope):
    return score + slope[h] * (q - k)


def soft_cap(score, b, h, q, k):
    return torch.tanh(score / 2) * 2


def two_tables(score, b, h, q, k, relative, table):
    return score * 2 + relative[h, q - k + N] + table[b, q, k]


def written_out(score_mod: Any, mask_mod: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *buffers: torch.Tensor) -> Any:
    """Attention and log-sum-exp, by their formulas."""
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    at = torch.meshgrid(*map(torch.arange, (*q.shape[:3], k.shape[2])), indexing="ij")
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    scores = score_mod(scores, *at, *buffers) if score_mod else scores
    scores = scores.masked_fill(~mask_mod(*at), -math.inf) if mask_mod else scores
    return scores.softmax(-1).nan_to_num() @ v, scores.logsumexp(-1)


def inputs(*more: tuple[int, ...]) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = (B, H, Q, D), (B, K, N, D), (B, K, N, D), *more
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]


def check(
    score_mod: Any, mask_mod: Any, *more: tuple[int, ...], run: Callable[[Any], Any], dtype: torch.dtype = torch.float32,
    rtol: float = 1e-4,
) -> None:
    """Attention, log-sum-exp, and the gradients of everything."""
    given = [x.to(dtype) for x in inputs(*more)]
    ours, cpu = [x.to("tpu").requires_grad_() for x in given], [x.double().requires_grad_() for x in given]
    block_mask = create_block_mask(mask_mod, B, H, Q, N, device="tpu", BLOCK_SIZE=8) if mask_mod else None

    def function(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *buffers: torch.Tensor) -> Any:
        changed = (lambda *at: score_mod(*at, *buffers)) if score_mod else None
        out, more = flex_attention(q, k, v, changed, block_mask, enable_gqa=True, return_aux=AuxRequest(lse=True))
        return out, more.lse

    got, want = run(function)(*ours), written_out(score_mod, mask_mod, *cpu)
    for results in (got, want):
        sum((x.nan_to_num(neginf=0) * 0.5).square().sum() for x in results).backward()
    for ours_, theirs in zip([*got, *(x.grad for x in ours)], [*want, *(x.grad for x in cpu)], strict=True):
        torch.testing.assert_close(ours_.detach().cpu().double(), theirs.detach(), rtol=rtol, atol=rtol * 5)


def compiled(function: Any) -> Any:
    return torch.compile(function, backend="tpu", fullgraph=True)


CASES = {
    "plain": (None, None), "causal": (None, causal), "documents": (soft_cap, documents),
    "empty rows": (None, some_rows_without_keys), "slopes": (slopes, causal, (H,)),
    "tables": (two_tables, None, (H, 2 * N), (B, Q, N)),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_compiled_in_several_blocks(case, regions, monkeypatch):
    monkeypatch.setattr(rules, "_BLOCK", 16)
    check(*case, run=compiled)
    assert regions == [True, True]


def test_compiled_in_one_block():
    check(*CASES["tables"], run=compiled)


def test_bfloat16():
    check(*CASES["slopes"], run=compiled, dtype=torch.bfloat16, rtol=5e-2)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_eager():
    check(*CASES["slopes"], run=lambda function: function)


def test_memory_does_not_grow_with_queries_times_keys():
    """Of a training step: less than one float32 matrix of scores."""
    given = [torch.zeros(1, 1, 4096, 8, device="tpu", requires_grad=True) for _ in range(3)]
    torch.tpu.synchronize()
    run = torch.compile(lambda q, k, v: flex_attention(q, k, v, soft_cap).sum(), backend="tpu")
    run(*given).backward()
    torch.tpu.synchronize()
    assert torchtpu.inspect.last_program_memory()["temp_bytes"] < 4096**2 * 4


def test_pytorch_still_refuses_the_device_by_itself():
    """When this fails, the patch in torchtpu/compile/late_patches.py can go."""
    q = torch.ones(1, 1, 8, 8, device="tpu")
    with pytest.raises(ValueError, match="only supported on CUDA"):
        flex._validate_device.__wrapped__(q, q, q)
