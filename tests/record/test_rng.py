"""Random numbers: the same seed gives the same ones in every mode, every draw is fresh, recomputation repeats its own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


def draws() -> list[torch.Tensor]:
    x = torch.zeros(16, device="tpu")
    made = [
        torch.rand(16, device="tpu"), torch.randn(16, device="tpu"), torch.randint(0, 100, (16,), device="tpu"),
        torch.randperm(16, device="tpu"), x.clone().uniform_(2, 3), x.clone().normal_(1, 2), torch.bernoulli(x + 0.5),
        nn.functional.dropout(x + 1, 0.5), torch.rand_like(x), x.clone().exponential_(),
        torch.rand(16, device="tpu", generator=torch.Generator("tpu").manual_seed(5)),
    ]
    return [m.cpu() for m in made]


def test_the_same_seed_gives_the_same_numbers_in_every_mode(mode):
    results = []
    for name in ("fused", "strict", "debug", "fused"):
        mode(name)
        torch.manual_seed(3)
        results.append(draws())
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))
    assert len({tuple(d.tolist()) for d in results[0] if d.dtype == torch.float32}) >= 8  # no two draws are alike


def test_every_draw_is_fresh_and_makes_no_program(count):
    torch.manual_seed(0)
    rows = [torch.rand(8, device="tpu").cpu() for _ in range(5)]
    assert len({tuple(r.tolist()) for r in rows}) == 5
    assert count.programs == 1
    pair = torch.stack([torch.rand(8, device="tpu"), torch.rand(8, device="tpu")]).cpu()  # within one program
    assert not torch.equal(pair[0], pair[1])


def test_seeding_does_not_recompile(count):
    def first(seed: int) -> list[float]:
        torch.manual_seed(seed)
        return torch.randn(4, device="tpu").cpu().tolist()

    assert first(1) == first(1) != first(2)
    assert first(2**40 + 1) != first(1)  # the whole seed counts
    assert count.programs == 1


def test_the_state_can_be_saved_and_restored():
    torch.manual_seed(0)
    torch.rand(3, device="tpu")
    state = torch.tpu.get_rng_state()
    assert state.dtype == torch.uint8 and state.numel() == 16
    one = torch.rand(3, device="tpu").cpu()
    torch.tpu.set_rng_state(state)
    assert torch.equal(torch.rand(3, device="tpu").cpu(), one)
    with torch.random.fork_rng(devices=[0], device_type="tpu"):
        torch.rand(3, device="tpu")
    after = torch.rand(3, device="tpu").cpu()
    torch.tpu.set_rng_state(state)
    torch.rand(3, device="tpu")
    assert torch.equal(torch.rand(3, device="tpu").cpu(), after)


def test_a_dropped_draw_still_advances():
    """Dead work is not computed, but the numbers after it do not depend on that."""
    torch.manual_seed(0)
    torch.rand(4, device="tpu")
    one = torch.rand(4, device="tpu").cpu()
    torch.manual_seed(0)
    kept = torch.rand(4, device="tpu")
    assert torch.equal(torch.rand(4, device="tpu").cpu(), one)
    assert not torch.equal(kept.cpu(), one)


def test_a_failed_shape_consumes_nothing():
    torch.manual_seed(0)
    expected = torch.rand(4, device="tpu").cpu()
    torch.manual_seed(0)
    with pytest.raises(RuntimeError):
        torch.rand(-1, device="tpu")
    assert torch.equal(torch.rand(4, device="tpu").cpu(), expected)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_draws_the_same_mask_again(count, reentrant):
    torch.manual_seed(0)
    layer = nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.5)).to("tpu")

    def gradient(run: Callable[[torch.Tensor], torch.Tensor]) -> list[torch.Tensor]:
        torch.manual_seed(7)
        x = torch.ones(4, 16, device="tpu", requires_grad=True)
        out = run(x)
        out.square().sum().backward()
        after = torch.rand(4, device="tpu")  # the generator goes on as if nothing had been recomputed
        grads = [x.grad, layer[0].weight.grad]
        layer.zero_grad()
        return [t.detach().cpu() for t in [out, *grads, after]]

    plain = gradient(layer)
    recomputed = gradient(lambda x: checkpoint(layer, x, use_reentrant=reentrant))
    for one, other in zip(plain, recomputed, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)
    assert (plain[0] == 0).any()


def test_dropout_in_backward_uses_the_mask_of_forward():
    x = torch.ones(64, device="tpu", requires_grad=True)
    y = nn.functional.dropout(x, 0.25)
    y.sum().backward()
    assert torch.equal(x.grad.cpu(), y.detach().cpu())


def test_moments():
    torch.manual_seed(0)
    normal, uniform = torch.randn(40000, device="tpu").cpu(), torch.rand(40000, device="tpu").cpu()
    assert abs(normal.mean()) < 0.02 and abs(normal.std() - 1) < 0.02
    assert abs(uniform.mean() - 0.5) < 0.01 and uniform.min() >= 0 and uniform.max() < 1
    assert torch.equal(torch.randperm(50, device="tpu").sort().values.cpu(), torch.arange(50))
