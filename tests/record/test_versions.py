"""Version counters: autograd has to see every write."""

from __future__ import annotations

import pytest
import torch


@pytest.mark.parametrize("device", ["cpu", "tpu"])
def test_writes_to_lists_count(device):
    x, y = torch.ones(2, device=device), torch.ones(3, device=device)
    torch._foreach_add_([x, y, x], 1)
    torch._foreach_mul_([y], [y])
    torch._foreach_addcmul_([x], [x], [x])
    torch._foreach_add([x], 1)
    assert (x._version, y._version) == (3, 2)


@pytest.mark.parametrize("device", ["cpu", "tpu"])
def test_a_step_between_forward_and_backward_is_noticed(device):
    weight = torch.nn.Parameter(torch.ones(2, device=device))
    weight.grad = torch.ones(2, device=device)
    loss = (weight * weight).sum()
    torch.optim.SGD([weight], lr=1.0, foreach=True).step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
