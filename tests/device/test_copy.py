"""copy_ in every direction: dtypes, broadcasting, strides, and the lazy conj and neg bits."""

from __future__ import annotations

import itertools

import pytest
import torch

import torchtpu.inspect

WAYS = [("cpu", "tpu"), ("tpu", "cpu"), ("tpu", "tpu")]
DTYPES = [torch.bool, torch.uint8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64,
          torch.complex64]


def values(dtype: torch.dtype) -> torch.Tensor:
    x = torch.tensor([[0, 1, 2.5, -3], [100.25, 0.1, 7, -0.0]], dtype=torch.float64)
    x = x.abs() if dtype == torch.uint8 else x
    return torch.complex(x, x.flip(1)).to(dtype) if dtype.is_complex else x.to(dtype)


def assert_copies(source: torch.Tensor, target: torch.Tensor, way: tuple[str, str], view=lambda x: x, read=lambda x: x) -> None:
    """``view(target).copy_(read(source))`` gives what it gives on the CPU, all of the target's storage included."""
    expected, got = target.clone(), target.clone().to(way[1])
    view(expected).copy_(read(source))
    result = view(got)
    assert result.copy_(read(source.to(way[0]))) is result
    assert got.dtype == expected.dtype
    if expected.element_size() == 1:  # compared as bytes: PyTorch compares no 8-bit floats
        expected, got = expected.view(torch.uint8), got.view(torch.uint8)
    assert torch.equal(got.cpu(), expected)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(way, dtype):
    for target in DTYPES:
        if dtype.is_complex <= target.is_complex:  # complex to real warns, below
            assert_copies(values(dtype), values(target) + 1 if target != torch.bool else values(target), way)


@pytest.mark.parametrize("way", WAYS)
def test_complex_to_real_warns_as_on_the_cpu(way):
    source, target = values(torch.complex64), values(torch.float32)
    torch.set_warn_always(True)
    try:
        with pytest.warns(UserWarning, match="discards the imaginary part"):
            got = target.to(way[1]).copy_(source.to(way[0]))
    finally:
        torch.set_warn_always(False)
    assert torch.equal(got.cpu(), source.real)


VIEWS = {
    "transposed": lambda x: x.t(),
    "strided": lambda x: x[:, ::2],
    "offset": lambda x: x[1:, 1:3],
    "one row": lambda x: x[1],
    "flat": lambda x: x.view(-1)[2:7],
    "scalar": lambda x: x[1, 2],
    "empty": lambda x: x[:, :0],
    "diagonal": lambda x: x.diagonal(),
    "unfolded": lambda x: x.unfold(1, 2, 2),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("view", VIEWS)
def test_strides(way, view):
    for dtype in (torch.float32, torch.complex64):
        source, target = values(torch.float32), torch.full((2, 4), 9, dtype=dtype)
        assert_copies(source, target, way, VIEWS[view], VIEWS[view])
        assert_copies(VIEWS[view](source).contiguous(), target, way, view=VIEWS[view])
        whole = torch.full(VIEWS[view](source).shape, 9, dtype=dtype)
        assert_copies(source, whole, way, read=VIEWS[view])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("shape", [(4,), (1, 4), (2, 1), (1, 1), ()])
def test_broadcasting(way, shape):
    source = torch.arange(1.0, 9)[:torch.Size(shape).numel()].reshape(shape)
    assert_copies(source, torch.zeros(2, 4), way)
    assert_copies(source, torch.zeros(2, 4, dtype=torch.int64), way)
    if shape != (4,) and shape != (1, 4):
        assert_copies(source, torch.zeros(4, 2), way, view=lambda x: x.t()[:, :3])


@pytest.mark.parametrize("way", WAYS)
def test_shapes_that_do_not_broadcast(way):
    with pytest.raises(RuntimeError, match="must match"):
        torch.zeros(2, 4, device=way[1]).copy_(torch.zeros(3, device=way[0]))
    with pytest.raises(RuntimeError):
        torch.zeros(4, device=way[1]).copy_(torch.zeros(2, 4, device=way[0]))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("view", "read"), list(itertools.product(
    [lambda x: x, torch.conj, lambda x: x.conj()[:, 1:], lambda x: x.conj().t()], repeat=2)))
def test_conjugate_bits(way, view, read):
    source = torch.complex(torch.arange(8.0), torch.arange(8.0) + 10).reshape(2, 4)
    target = torch.full((2, 4), 5 + 6j)
    if view(target).shape == read(source).shape:
        assert_copies(source, target, way, view, read)
        assert_copies(source, target.to(torch.complex128), way, view, read)


@pytest.mark.parametrize("way", WAYS)
def test_negative_bits(way):
    source, target = torch.complex(torch.arange(8.0), torch.arange(8.0) + 10).reshape(2, 4), torch.full((2, 4), 5 + 6j)
    for view in (lambda x: x.real, lambda x: x.conj().imag, lambda x: x.imag[:, ::3]):
        for read in (lambda x: x.conj().imag, lambda x: x.conj().imag.t().t(), lambda x: x.real):
            if view(target).shape == read(source).shape:
                assert_copies(source, target, way, view, read)
    assert source.conj().imag.is_neg()


@pytest.mark.parametrize("way", WAYS)
def test_narrow_floats(way):
    for narrow in (torch.float8_e4m3fn, torch.float8_e5m2):
        assert_copies(values(torch.float32), values(torch.float32).to(narrow), way)
        assert_copies(values(torch.float32).to(narrow), values(torch.float32), way)
        assert_copies(values(torch.float32).to(narrow), values(torch.bfloat16), way)


def test_a_copy_of_overlapping_parts():
    x = torch.arange(6.0, device="tpu")
    x[1:].copy_(x[:-1].clone())
    assert x.tolist() == [0, 0, 1, 2, 3, 4]
    x.copy_(x)
    x[::2].copy_(x[1::2])
    assert x.tolist() == [0, 0, 2, 2, 4, 4]


def test_copies_do_not_share():
    source = torch.arange(4.0)
    x = source.to("tpu")
    source += 1
    y = x.clone()
    back = x.cpu()
    x += 10
    z = x.to("tpu")  # no copy
    assert z is x
    assert x.tolist() == [10, 11, 12, 13] and y.tolist() == back.tolist() == [0, 1, 2, 3]
    assert x.to("tpu", copy=True).data_ptr() != x.data_ptr()


def test_uploads_replace_what_recorded_work_has_read():
    x = torch.ones(3, device="tpu")
    y = x + 1
    x.copy_(torch.tensor([5.0, 6, 7]))  # y was recorded before
    x[:2].copy_(torch.tensor([8.0, 9]))
    assert y.tolist() == [2, 2, 2] and x.tolist() == [8, 9, 7]


def test_a_buffer_refilled_from_the_host_is_read_anew():
    x, sums = torch.zeros(3, device="tpu"), []
    for k in range(1, 4):
        x.copy_(torch.full((3,), float(k)))
        sums.append(x.sum())
        x.add_(1)
        sums.append(x.sum())
    assert [s.item() for s in sums] == [3, 6, 6, 9, 9, 12]


def test_gradients_pass_through_copies():
    x = torch.ones(3, requires_grad=True)
    y = torch.zeros(3, device="tpu")
    y.copy_(x * 2)
    (y.cpu() * torch.tensor([1.0, 2, 3])).sum().backward()
    assert x.grad.tolist() == [2, 4, 6]


def test_what_conversions_keep():
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    y = x.to("tpu")
    assert y.stride() == x.stride() and y.cpu().stride() == x.stride() and torch.equal(y.cpu(), x)
    assert y.to(torch.float64).stride() == x.stride()
    assert x.t_().to("tpu").stride() == x.stride() if x.dim() == 2 else True
    parameter = torch.nn.Parameter(torch.ones(2))
    assert parameter.to("tpu").requires_grad


def test_scalars_and_lists():
    assert torch.tensor(3, device="tpu").item() == 3
    assert torch.tensor([[1, 2], [3, 4]], device="tpu").tolist() == [[1, 2], [3, 4]]
    assert torch.tensor(True, device="tpu").item() is True
    assert torch.tensor(1 + 2j, device="tpu").item() == 1 + 2j
    assert torch.tensor(1.5, dtype=torch.bfloat16, device="tpu").item() == 1.5
    assert float(torch.ones(1, 1, device="tpu")) == 1 and int(torch.full((), 2**62 + 1, device="tpu")) == 2**62 + 1
    assert torch.ones(3, device="tpu")[1:2].item() == 1
    z = torch.tensor([1 + 2j], device="tpu")
    assert z.conj().item() == 1 - 2j and z.conj().imag.item() == -2
    with pytest.raises(RuntimeError, match="Tensor with 2 elements cannot be converted to Scalar"):
        torch.ones(2, device="tpu").item()
    with pytest.raises(TypeError, match="convert tpu:0 device type tensor to numpy"):
        torch.ones(2, device="tpu").numpy()
    assert torch.from_numpy(torch.ones(2).numpy()).to("tpu").sum().item() == 2


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_beginning_is_read_with_the_rest(dtype):
    """At least half of a buffer: no program cuts it out."""
    x = values(dtype)
    whole = torch.cat([x, x, x + x if dtype != torch.bool else x]).to("tpu")
    torch.tpu.synchronize()
    before = torchtpu.inspect.counters()["launches"]
    assert torch.equal(whole[:4].cpu(), torch.cat([x, x]))
    assert torch.equal(whole.view(-1)[:13].to("cpu", torch.complex64), torch.cat([x, x]).view(-1)[:13].to(torch.complex64))
    assert torchtpu.inspect.counters()["launches"] == before
    assert torch.equal(whole[:1].cpu(), x[:1])
    assert torch.equal(whole[2:].cpu()[:2], x)
