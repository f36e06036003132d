"""What a tensor looks like in memory: channels_last survives as on the CPU; layouts that XLA has not are refused."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from torchtpu.errors import LayoutError

NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "conv": lambda: nn.Conv2d(4, 6, 3),
    "transposed conv": lambda: nn.ConvTranspose2d(4, 6, 3, stride=2),
    "depthwise conv": lambda: nn.Conv2d(4, 4, 3, groups=4),
    "batch_norm": lambda: nn.BatchNorm2d(4),
    "group_norm": lambda: nn.GroupNorm(2, 4),
    "relu": lambda: nn.ReLU(),
    "max_pool": lambda: nn.MaxPool2d(2),
    "avg_pool": lambda: nn.AvgPool2d(2),
    "adaptive pool": lambda: nn.AdaptiveAvgPool2d(2),
    "nearest": lambda: nn.Upsample(scale_factor=2),
    "bilinear": lambda: nn.Upsample(scale_factor=2, mode="bilinear"),
    "pad": lambda: nn.ReflectionPad2d(1),
    "block": lambda: nn.Sequential(nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 4, 1)),
}


def run(name: str, device: str, memory_format: torch.memory_format) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    network = NETWORKS[name]().to(device, memory_format=memory_format)
    x = torch.randn(2, 4, 8, 8).to(device, memory_format=memory_format).requires_grad_()
    out = network(x)
    out.square().sum().backward()
    assert x.grad is not None
    return {"out": out.detach(), "grad": x.grad, **{n: p.grad for n, p in network.named_parameters() if p.grad is not None}}


@pytest.mark.parametrize("memory_format", [torch.channels_last, torch.contiguous_format], ids=["channels_last", "contiguous"])
@pytest.mark.parametrize("name", NETWORKS)
def test_strides_are_those_of_the_cpu(name, memory_format):
    ours, theirs = (run(name, device, memory_format) for device in ("tpu", "cpu"))
    for what, tensor in theirs.items():
        assert ours[what].stride() == tensor.stride(), what
    if name in ("batch_norm", "block"):  # the values are looked at elsewhere, layout by layout only here
        for what, tensor in theirs.items():
            torch.testing.assert_close(ours[what].cpu(), tensor, rtol=1e-4, atol=1e-4)


def _embedding_gradient(device: str) -> object:
    layer = nn.Embedding(3, 2, sparse=True).to(device)
    return layer(torch.tensor([1], device=device)).sum().backward()


def _quantized(device: str) -> torch.Tensor:
    return torch.quantize_per_tensor(torch.ones(2, device=device), 0.1, 0, torch.qint8)


OTHERS: dict[str, tuple[Callable[[str], object], str]] = {
    "COO": (lambda d: torch.sparse_coo_tensor([[0, 1], [1, 0]], [1.0, 2.0], (2, 2), device=d), "to_dense"),
    "COO moved": (lambda d: torch.eye(2).to_sparse().to(d), "to_dense"),
    "COO made": (lambda d: torch.eye(2, device=d).to_sparse(), "to_dense"),
    "COO empty": (lambda d: torch.zeros(2, 2, layout=torch.sparse_coo, device=d), "to_dense"),
    "CSR": (lambda d: torch.sparse_csr_tensor([0, 1, 2], [0, 1], [1.0, 2.0], device=d), "to_dense"),
    "CSR moved": (lambda d: torch.eye(2).to_sparse_csr().to(d), "to_dense"),
    "CSR made": (lambda d: torch.eye(2, device=d).to_sparse_csr(), "to_dense"),
    "BSR made": (lambda d: torch.eye(2, device=d).to_sparse_bsr((1, 1)), "to_dense"),
    "product with sparse": (lambda d: torch.sparse.mm(torch.eye(2).to_sparse(), torch.ones(2, 2, device=d)), "to_dense"),
    "sparse gradient": (_embedding_gradient, "sparse=False"),
    "quantized": (_quantized, "dequantize"),
    "quantized moved": (lambda d: _quantized("cpu").to(d), "dequantize"),
    "quantized empty": (lambda d: torch.empty(2, dtype=torch.qint8, device=d), "dequantize"),
    "oneDNN": (lambda d: torch.ones(2, device=d).to_mkldnn(), "as it is"),
    "nested, strided": (lambda d: torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(1, 3)], device=d), "torch.jagged"),
    "nested of dense": (lambda d: torch.nested.as_nested_tensor([torch.ones(2, 3, device=d), torch.ones(1, 3, device=d)]),
                        "torch.jagged"),
}


@pytest.mark.filterwarnings("ignore::UserWarning")  # PyTorch's own: sparse CSR and strided nesting are in beta
@pytest.mark.parametrize("name", OTHERS)
def test_other_layouts_are_refused_with_what_to_do(name):
    make, advice = OTHERS[name]
    with pytest.raises(LayoutError, match=advice):
        repr(make("tpu"))  # some can be made, and nothing more
    x = torch.ones(2, device="tpu")
    assert F.relu(x).tolist() == [1, 1]  # and nothing is broken


def test_sparse_tensors_go_by_way_of_dense_ones():
    sparse = torch.eye(3).to_sparse()
    assert torch.equal(sparse.to_dense().to("tpu").cpu().to_sparse().to_dense(), torch.eye(3))


FIRST_USES = """
import torch
from torchtpu.errors import LayoutError

nested = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(1, 3)])
for make in (
    lambda: torch.empty(2, 2, layout=torch.sparse_coo, device="tpu"),
    lambda: torch.sparse_coo_tensor((2, 2), device="tpu"),
    lambda: torch.zeros_like(torch.eye(2).to_sparse(), device="tpu"),
    lambda: torch.empty(2, 2, layout=torch.sparse_csr, device="tpu"),
    lambda: torch.empty(2, dtype=torch.qint8, device="tpu"),
    lambda: torch._empty_affine_quantized([2], scale=1.0, zero_point=0, dtype=torch.qint8, device="tpu"),
    lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8).to("tpu"),
    lambda: nested.to("tpu"),
):
    try:
        make()
    except LayoutError as error:
        print(str(error).partition(": ")[0])
"""


def test_the_first_use_of_the_device_may_be_refused():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", FIRST_USES], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [
        "aten::empty.memory_format", "aten::_sparse_coo_tensor_with_dims", *["aten::empty.memory_format"] * 3,
        "aten::_empty_affine_quantized", "aten::empty_quantized", "aten::_to_copy"]
