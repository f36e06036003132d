"""The numbers of torch.tpu about memory are those of the live arrays."""

from __future__ import annotations

import gc

import pytest
import torch

MIB = 1 << 20


@pytest.fixture(autouse=True)
def _settled():
    gc.collect()
    torch.tpu.synchronize()


def test_what_tensors_hold_is_counted():
    before = torch.tpu.memory_allocated()
    x = torch.ones(MIB)
    y = x.to("tpu")
    assert torch.tpu.memory_allocated() == before + 4 * MIB
    z = y * 2
    torch.tpu.synchronize()
    assert torch.tpu.memory_allocated() == before + 8 * MIB
    view = z[10:20]
    del z
    assert torch.tpu.memory_allocated() == before + 8 * MIB  # the view keeps it
    del view
    assert torch.tpu.memory_allocated() == before + 4 * MIB
    y.add_(1)
    torch.tpu.synchronize()
    assert torch.tpu.memory_allocated() == torch.accelerator.memory_allocated() == before + 4 * MIB
    del y
    torch.tpu.empty_cache()
    torch.accelerator.empty_cache()
    assert torch.tpu.memory_allocated() == torch.tpu.memory_reserved() == before


def test_tensors_never_written_cost_nothing():
    before = torch.tpu.memory_allocated()
    x = torch.empty(64 * MIB, device="tpu")
    assert torch.tpu.memory_allocated() == before
    x.untyped_storage().resize_(0)


def test_the_peak():
    torch.tpu.reset_peak_memory_stats()
    start = torch.tpu.max_memory_allocated()
    assert start == torch.tpu.memory_allocated()
    x = torch.ones(2 * MIB, device="tpu")
    torch.tpu.synchronize()
    del x
    assert torch.tpu.max_memory_allocated() >= start + 8 * MIB
    assert torch.tpu.max_memory_allocated() == torch.tpu.max_memory_reserved() == torch.accelerator.max_memory_allocated()
    torch.accelerator.reset_peak_memory_stats()
    assert torch.tpu.max_memory_allocated() == torch.tpu.memory_allocated() == start


def test_the_peak_includes_what_programs_need_while_they_run():
    x = torch.rand(512, 512, device="tpu")
    torch.tpu.synchronize()
    torch.tpu.reset_peak_memory_stats()
    start = torch.tpu.memory_allocated()
    y = ((x @ x).softmax(1) @ x).sort().values.sum()
    torch.tpu.synchronize()
    assert torch.tpu.max_memory_allocated() - start >= MIB > torch.tpu.memory_allocated() - start
    assert y.item() > 0


def test_statistics_under_the_names_of_cuda():
    x = torch.ones(MIB, device="tpu")
    torch.tpu.synchronize()
    stats = torch.tpu.memory_stats()
    assert stats["allocated_bytes.all.current"] == torch.tpu.memory_allocated()
    assert stats["allocated_bytes.all.peak"] == torch.tpu.max_memory_allocated()
    assert stats["allocated_bytes.all.allocated"] - stats["allocated_bytes.all.freed"] == stats["allocated_bytes.all.current"]
    assert stats["allocation.all.allocated"] - stats["allocation.all.freed"] == stats["allocation.all.current"] > 0
    generic = torch.accelerator.memory_stats()
    assert generic["allocated_bytes.all.current"] == stats["allocated_bytes.all.current"]
    assert x.numel() == MIB


def test_free_and_total():
    free, total = torch.tpu.mem_get_info()
    assert 0 < free <= total
    assert torch.accelerator.get_memory_info()[1] == torch.tpu.get_device_properties().total_memory == total


def test_a_training_loop_keeps_its_memory():
    model = torch.nn.Linear(100, 100).to("tpu")
    optimizer = torch.optim.AdamW(model.parameters())
    seen = []
    for _ in range(6):
        model(torch.ones(8, 100, device="tpu")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.tpu.synchronize()
        seen.append(torch.tpu.memory_allocated())
    assert seen[1:] == [seen[1]] * 5
