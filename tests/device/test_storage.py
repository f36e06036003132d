"""Storages: resizing, dropping and refilling them, and giving tensors another one."""

from __future__ import annotations

import pytest
import torch


def test_resize_grows_and_keeps_the_data():
    for fill in (lambda x: x, lambda x: x + 1):  # a finished value, and one still recorded
        x = fill(torch.arange(4.0, device="tpu"))
        expected = x.tolist()
        x.resize_(2, 4)
        assert x.shape == (2, 4) and x.view(-1)[:4].tolist() == expected
        assert x.untyped_storage().nbytes() == 32
        x.resize_(3)
        assert x.tolist() == expected[:3] and x.untyped_storage().nbytes() == 32  # a storage never shrinks
        x.resize_as_(torch.ones(2, 2, device="tpu"))
        assert x.view(-1).tolist() == expected


def test_resize_of_a_view_keeps_the_offset():
    x = torch.arange(6.0, device="tpu")
    y = x[2:4]
    y.resize_(6)
    assert y[:4].tolist() == [2, 3, 4, 5] and x.tolist() == [0, 1, 2, 3, 4, 5]
    y[0] = 9
    assert x[2].item() == 9  # still the same storage


def test_resize_of_an_empty_tensor():
    x = torch.empty(0, device="tpu")
    x.resize_(2, 3).fill_(4)
    assert x.sum().item() == 24
    y = torch.empty(0, device="tpu", dtype=torch.int64)
    torch.arange(5, out=y)
    assert y.tolist() == [0, 1, 2, 3, 4]


def test_a_storage_is_dropped_and_refilled():
    """What fully sharded data parallel does with the gathered parameters around every layer."""
    full = torch.arange(8.0, device="tpu")
    layer = full.view(2, 4)
    storage = full.untyped_storage()
    used = layer * 1
    torch.tpu.synchronize()
    before = torch.tpu.memory_allocated()
    storage.resize_(0)
    assert storage.nbytes() == 0 and full.shape == (8,)
    assert torch.tpu.memory_allocated() <= before - 32
    storage.resize_(32)
    full.copy_(torch.arange(8.0) + 100)
    assert layer.tolist() == [[100, 101, 102, 103], [104, 105, 106, 107]]
    assert used.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_a_storage_dropped_before_the_work_that_reads_it_ran():
    x = torch.arange(3.0, device="tpu")
    y = x * 2
    x.untyped_storage().resize_(0)
    x.untyped_storage().resize_(12)
    x.fill_(5)
    assert y.tolist() == [0, 2, 4] and x.tolist() == [5, 5, 5]


def test_growing_a_storage_keeps_the_bytes():
    x = torch.arange(3, dtype=torch.int16, device="tpu")
    x.untyped_storage().resize_(12)
    y = torch.empty(0, dtype=torch.int16, device="tpu").set_(x.untyped_storage(), 0, (6,), (1,))
    assert y[:3].tolist() == x.tolist() == [0, 1, 2]
    x.untyped_storage().resize_(4)
    assert torch.empty(0, dtype=torch.int16, device="tpu").set_(x.untyped_storage()).tolist() == [0, 1]


def test_set_shares_the_storage():
    x, y = torch.arange(4.0, device="tpu"), torch.zeros(2, device="tpu")
    y.set_(x)
    y += 1
    assert x.tolist() == [1, 2, 3, 4]
    z = torch.empty(0, device="tpu").set_(x.untyped_storage(), 1, (2,), (2,))
    assert z.tolist() == [2, 4]
    z.zero_()
    assert y.tolist() == [1, 0, 3, 0]
    z.set_()
    assert z.numel() == 0 and x.tolist() == [1, 0, 3, 0]


def test_data_gives_a_tensor_another_value():
    parameter = torch.nn.Parameter(torch.ones(2, device="tpu"))
    loss = (parameter * 3).sum()
    parameter.data = torch.tensor([5.0, 6.0], device="tpu")
    loss.backward()
    assert parameter.grad.tolist() == [3, 3] and parameter.tolist() == [5, 6]
    parameter.data.mul_(2)
    assert parameter.tolist() == [10, 12]
    parameter.data = torch.ones(3)  # even back to the CPU
    assert parameter.device.type == "cpu" and parameter.shape == (3,)


def test_storages_move_and_compare():
    x = torch.arange(4, dtype=torch.uint8, device="tpu")
    storage = x.untyped_storage()
    assert storage.device == torch.device("tpu", 0) and storage.nbytes() == len(storage) == 4
    assert bytes(storage.cpu().tolist()) == b"\x00\x01\x02\x03"
    assert bytes(storage.clone().cpu().tolist()) == b"\x00\x01\x02\x03"
    assert storage.data_ptr() == x[1:].untyped_storage().data_ptr()
    other = torch.UntypedStorage(4, device="tpu")
    other.copy_(storage)
    assert torch.empty(0, dtype=torch.uint8, device="tpu").set_(other).tolist() == [0, 1, 2, 3]
    moved = torch.tensor([7, 8], dtype=torch.uint8).untyped_storage().to(device="tpu")
    assert torch.empty(0, dtype=torch.uint8, device="tpu").set_(moved).tolist() == [7, 8]


def test_storages_filled_by_hand():
    storage = torch.UntypedStorage(8, device="tpu").fill_(1)
    assert torch.empty(0, dtype=torch.int32, device="tpu").set_(storage).tolist() == [0x01010101] * 2


def test_a_tensor_not_yet_written_reads_as_zeros():
    assert torch.empty(3, device="tpu").tolist() == [0, 0, 0]
    x = torch.empty(2, 3, device="tpu")
    x[0] = 1
    assert x.tolist() == [[1, 1, 1], [0, 0, 0]]


def test_negative_and_huge_sizes():
    with pytest.raises(RuntimeError, match="negative"):
        torch.empty(-1, device="tpu")
    with pytest.raises(RuntimeError, match="overflow"):
        torch.empty(2**62, 8, device="tpu")
