"""What tensors and the module's parts look like."""

from __future__ import annotations

import torch

from torchtpu import inspect


def test_values_are_those_of_the_cpu():
    for x in (torch.arange(3), torch.rand(2, 3) * 1e5, torch.tensor(2.5), torch.tensor([float("nan"), float("inf")]),
              torch.tensor([1 + 2j]), torch.ones(2, dtype=torch.bfloat16), torch.zeros(0, 3), torch.rand(100, 100),
              torch.tensor([True])):
        expected, got = ("".join(repr(each).split()) for each in (x, x.to("tpu")))
        assert ",device='tpu:0'" in got and got.replace(",device='tpu:0'", "") == expected


def test_gradients_and_views_are_named():
    x = torch.ones(2, device="tpu", requires_grad=True)
    assert repr(x) == "tensor([1., 1.], device='tpu:0', requires_grad=True)"
    assert repr(x * 2) == "tensor([2., 2.], device='tpu:0', grad_fn=<MulBackward0>)"
    assert repr(torch.nn.Parameter(x.detach())) == "Parameter containing:\ntensor([1., 1.], device='tpu:0', requires_grad=True)"
    assert f"{torch.tensor(1.5, device='tpu'):.3f}" == "1.500"
    assert str(torch.tensor([1j], device="tpu").conj()) == "tensor([0.-1.j], device='tpu:0')"


def test_printing_compiles_nothing_of_its_own():
    x = torch.rand(50, 50, device="tpu")
    torch.tpu.synchronize()
    before = inspect.counters()["compiles"]
    repr(x)
    repr(x)
    assert inspect.counters()["compiles"] == before


def test_devices_streams_and_generators():
    assert str(torch.device("tpu")) == "tpu" and repr(torch.device("tpu:0")) == "device(type='tpu', index=0)"
    assert "tpu" in repr(torch.tpu.Stream()) and "tpu" in repr(torch.tpu.Event())
    assert torch.Generator("tpu").device.type == "tpu"
    assert "privateuse" not in repr(torch.ones(1, device="tpu").untyped_storage()).lower()
    assert torch.ones(1, device="tpu").type() == "torch.tpu.FloatTensor"
