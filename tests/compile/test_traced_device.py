"""``torch.tpu`` in compiled code, and what Dynamo asks of a device."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from tests.compile.compare import compare


def whole(function):
    """The function compiled without a graph break, called with ones."""
    return torch.compile(function, backend="tpu", fullgraph=True)(torch.ones(3, device="tpu"))


def in_device(x):
    with torch.tpu.device(0), torch.tpu.device_of(x):
        return x + torch.ones(3, device="tpu")


@pytest.mark.parametrize("function", [
    in_device, lambda x: x + torch.tpu.current_device() + 1, lambda x: x + 1 if torch.tpu.is_available() else x,
    lambda x: x + min(torch.tpu.device_count(), 1), lambda x: x + 1 if torch.tpu.is_initialized() else x,
    lambda x: x + 1 if torch.accelerator.is_available() else x])
def test_questions_about_the_device_do_not_break_the_graph(function):
    compare(whole(function), torch.full((3,), 2.0))


@pytest.mark.filterwarnings("ignore:torch.compile. a graph break")
def test_seeds_set_inside():
    def function(x):
        torch.tpu.manual_seed(3)
        return x + torch.rand(3, device="tpu")

    x = torch.ones(3, device="tpu")
    compare(torch.compile(function, backend="tpu")(x), function(x).cpu())


def test_the_interface_of_dynamo_is_ours():
    from torch._dynamo.device_interface import get_interface_for_device

    interface = get_interface_for_device("tpu")
    assert interface.is_available() and interface.device_count() == torch.tpu.device_count()
    assert interface.current_device() == 0 and interface.exchange_device(0) == 0
    assert interface.current_stream() == torch.tpu.current_stream()


def test_patches_wait_for_their_modules():
    code = (
        "import sys, torch; names = ['torch._dynamo', 'torch.nn.attention.flex_attention']\n"
        "assert not [n for n in names if n in sys.modules]\n"
        "import torch.nn.attention.flex_attention as f; assert hasattr(f._validate_device, '__wrapped__')\n"
        "import inspect; assert 'def flex_attention' in inspect.getsource(f)")
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
