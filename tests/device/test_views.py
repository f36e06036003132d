"""Views share their storage, views of another dtype included."""

from __future__ import annotations

import pytest
import torch


def both(function) -> None:
    """``function(device)`` returns the same tensors, to the bit, on the CPU and on the device."""
    for got, expected in zip(function("tpu"), function("cpu"), strict=True):
        assert got.dtype == expected.dtype and got.stride() == expected.stride()
        assert got.storage_offset() == expected.storage_offset()
        assert torch.equal(got.cpu(), expected)


@pytest.mark.parametrize(("source", "target"), [
    (torch.float32, torch.int32), (torch.float32, torch.uint8), (torch.uint8, torch.int16), (torch.int64, torch.float32),
    (torch.bfloat16, torch.int16), (torch.float16, torch.bfloat16), (torch.float64, torch.int32), (torch.int32, torch.float64),
    (torch.complex64, torch.float32), (torch.float32, torch.complex64), (torch.int8, torch.bool),
])
def test_view_of_another_dtype(source, target):
    def run(device):
        start = torch.arange(32).reshape(2, 16) % 2
        x = start.to(source).to(device)
        bits = x.view(target)
        before = bits.clone()
        bits[:, 1:2] = bits[:, :1]
        return [before, bits, x]

    both(run)


def test_view_of_another_dtype_needs_fitting_strides():
    x = torch.zeros(4, 6, device="tpu")
    with pytest.raises(RuntimeError, match="divisible"):
        x[:, :3].view(torch.float64)
    with pytest.raises(RuntimeError):
        x.t().view(torch.uint8)


def test_complex_parts_can_be_written():
    def run(device):
        z = torch.complex(torch.arange(6.0), torch.arange(6.0) + 10).reshape(2, 3).to(device)
        z.real[0] = -1
        z.imag.mul_(2)
        pairs = torch.view_as_real(z)
        pairs[1, 1] = torch.tensor([8.0, 9.0])
        z.conj().imag.add_(1)
        w = torch.view_as_complex(torch.arange(8.0).reshape(2, 2, 2).to(device))
        w[0] *= 1j
        return [z, pairs, w, torch.view_as_real(w), z.conj().resolve_conj(), z.conj().imag.resolve_neg()]

    both(run)


def test_conjugate_views_share():
    z = torch.tensor([1 + 2j, 3 - 1j], device="tpu")
    c = z.conj()
    assert c.is_conj() and c.data_ptr() == z.data_ptr()
    z += 1j
    assert c.tolist() == [1 - 3j, 3 + 0j]
    c[0] = 7 + 1j
    assert z.tolist() == [7 - 1j, 3 + 0j]
    assert (c + z).tolist() == [14, 6]
    assert torch.resolve_conj(c).is_conj() is False and c.clone().tolist() == c.tolist()


def test_views_follow_writes_in_both_directions():
    def run(device):
        base = torch.arange(24.0).to(device)
        cube = base.view(2, 3, 4)
        part, flat, wide = cube[:, 1:, ::2], cube.transpose(0, 2), cube.expand(2, 2, 3, 4)
        diagonal = cube[0].diagonal()
        base += 1
        part *= 2
        flat[0] = -1
        diagonal.zero_()
        windows = base.unfold(0, 4, 2)
        base[3] = 100
        return [base, cube, part, flat, wide, diagonal, windows]

    both(run)


def test_strides_by_hand():
    def run(device):
        x = torch.arange(20.0).to(device)
        a = x.as_strided((3, 4), (5, 1), 2)
        overlapping = x.as_strided((4, 4), (1, 1))
        a.add_(100)
        b = torch.empty_strided((3, 2), (1, 4), device=device)
        b.copy_(a[:, :2])
        c = torch.empty_permuted((2, 3, 4), (1, 2, 0), device=device).fill_(2)
        return [x, a, overlapping, b, c]

    both(run)


def test_in_place_metadata():
    def run(device):
        x = torch.arange(6.0).reshape(2, 3).to(device)
        y = x.view(-1)
        x.t_()
        x[0, 1] = 50
        x.unsqueeze_(0)
        x.squeeze_(0)
        return [x, y]

    both(run)


def test_splits_and_views_of_nothing():
    def run(device):
        x = torch.arange(12.0).reshape(3, 4).to(device)
        first, second = x.split(2, 1)
        first.add_(second)
        empty = x[:, 4:]
        empty.add_(1)
        rows = x.unbind(0)
        rows[1].zero_()
        return [x, first, second, empty, *rows, *x.chunk(2), x.narrow(0, 1, 2), x.select(1, 0)]

    both(run)


def test_gradients_through_views():
    x = torch.arange(4.0, device="tpu").requires_grad_()
    y = x * 1
    y.view(2, 2).select(0, 1).mul_(3)
    (y * torch.tensor([1.0, 2, 3, 4], device="tpu")).sum().backward()
    assert x.grad.tolist() == [1, 2, 9, 12]
    with pytest.raises(RuntimeError, match="leaf Variable"):
        x.view(2, 2)[0].zero_()


def test_bookkeeping():
    x = torch.ones(3, 4, device="tpu")
    assert x[1:]._base is x and x.is_contiguous() and not x.t().is_contiguous()
    assert x.data_ptr() == x.view(-1).data_ptr() and x.untyped_storage().nbytes() == 48
    assert x.is_set_to(x.view(3, 4)) and not x.is_set_to(x[1:])
    version = x._version
    x.view(-1).add_(1)
    assert x._version == version + 1


def test_places_of_nonzero_elements_lie_in_columns():
    both(lambda device: [torch.tensor([[1, 0], [1, 1]], device=device).nonzero(), torch.ones(3, device=device).nonzero()])


def test_places_of_nonzero_elements_lie_in_columns_of_a_resized_tensor():
    def run(device):
        x, fitting = torch.tensor([[1, 0], [1, 1]], device=device), torch.empty(3, 2, dtype=torch.int64, device=device)
        resized = torch.empty(0, dtype=torch.int64, device=device)
        torch.nonzero(x, out=fitting)
        torch.nonzero(x, out=resized)
        return [fitting, resized]

    both(run)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_distinct_slices_lie_one_after_the_other(dim):
    def run(device):
        x = torch.tensor([[[1, 2], [1, 2], [0, 3]], [[4, 5], [4, 5], [6, 7]]], device=device)
        return [*torch.unique(x, dim=dim, return_inverse=True), *torch.unique_consecutive(x, dim=dim, return_counts=True)]

    both(run)


def test_what_a_mask_selects_lies_as_the_cpu_lays_it():
    def run(device):
        x = torch.arange(120, device=device).reshape(2, 3, 4, 5)
        rows, columns = torch.tensor([True, False, True, True], device=device), torch.tensor([1, 0, 1, 0, 1], device=device) != 0
        plane = torch.arange(10, device=device).view(2, 5) % 3 != 0
        y = x.permute(2, 0, 3, 1)
        return [
            y[rows], y[:, :, columns], y[:, plane], y[rows, :, torch.tensor([0, 2, 4], device=device)],
            y[rows, :, :, torch.tensor([[0], [1]], device=device)], y[:, :, plane[0]], x.mT[..., columns, :], x[:, rows[:3]]]

    both(run)
