"""Tensors whose value was never computed say so, on the line that uses them, with the first error's words."""

from __future__ import annotations

import copy

import pytest
import torch

from torchtpu import _C
from torchtpu.errors import PoisonedTensorError, TorchTPUError
from torchtpu.runtime import executables


@pytest.fixture
def poisoned(monkeypatch) -> torch.Tensor:
    """A tensor that a failed launch left without a value."""

    class LaunchFailedError(TorchTPUError):
        template = "the chip is on fire"

    def refuse(*_):
        raise LaunchFailedError

    torch.tpu.synchronize()
    x = torch.ones(3, device="tpu") * 2
    with monkeypatch.context() as patch:
        patch.setattr(executables, "launch", refuse)
        with pytest.raises(LaunchFailedError, match="on fire"):
            x.tolist()
    assert _C.state(x) == "poisoned"
    return x


@pytest.mark.parametrize("use", [
    lambda x: x + 1, lambda x: x.cpu(), lambda x: x.tolist(), lambda x: x[0].item(), lambda x: x.add_(1), repr,
    lambda x: torch.cat([x, x]), copy.deepcopy, lambda x: torch.ones(3, device="tpu").copy_(x), lambda x: x.__dlpack__()])
def test_using_one_tells_the_first_error(poisoned, use):
    with pytest.raises(PoisonedTensorError, match=r"This tensor has no value.*The first error was: the chip is on fire"):
        use(poisoned)


def test_what_needs_no_value_still_works(poisoned):
    assert poisoned.shape == (3,) and poisoned.view(1, 3).stride() == (3, 1)
    poisoned.copy_(torch.tensor([1.0, 2, 3]))  # a new value heals it
    assert poisoned.tolist() == [1, 2, 3]
    torch.tpu.synchronize()


def test_other_tensors_are_unharmed(poisoned):
    y = torch.arange(3.0, device="tpu")
    assert (y + 1).tolist() == [1, 2, 3]
    del poisoned
    torch.tpu.synchronize()
