"""Page-locked host memory, and copies from it that run behind the caller's back."""

from __future__ import annotations

import ctypes
import gc
import mmap
import re
import threading
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

MIB = 1 << 20


def locked_bytes() -> int:
    """Locked memory of this process, as the kernel counts it."""
    return int(re.search(r"VmLck:\s*(\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024


@pytest.fixture(scope="module", autouse=True)
def _may_lock():
    memory = mmap.mmap(-1, 300 * MIB)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc = ctypes.CDLL(None)
    if libc.mlock(ctypes.c_void_p(address), ctypes.c_size_t(len(memory))) != 0:
        pytest.skip("this system does not let a process lock 300 MiB")
    libc.munlock(ctypes.c_void_p(address), ctypes.c_size_t(len(memory)))


def test_pinned_memory_is_locked():
    before = locked_bytes()
    x = torch.empty(8 * MIB, dtype=torch.uint8, pin_memory=True)
    assert x.is_pinned() and locked_bytes() >= before + 8 * MIB
    y = torch.ones(2 * MIB).pin_memory()
    assert y.is_pinned() and y[1000:].is_pinned() and locked_bytes() >= before + 16 * MIB
    assert y.sum() == 2 * MIB
    assert not torch.ones(2).is_pinned() and not torch.ones(2, device="tpu").is_pinned()
    assert not torch.empty(0, pin_memory=True).numel()
    del x, y
    gc.collect()
    torch.accelerator.empty_host_cache()
    assert locked_bytes() == before


def test_pinning_a_pinned_tensor_is_no_copy():
    x = torch.ones(5).pin_memory()
    assert x.pin_memory().data_ptr() == x.data_ptr()


def test_tpu_tensors_cannot_be_pinned():
    with pytest.raises(RuntimeError, match=r"Only CPU tensors can be pinned|only dense CPU tensors can be pinned"):
        torch.ones(2, device="tpu").pin_memory()
    with pytest.raises(RuntimeError, match="pinned"):
        torch.empty(2, device="tpu", pin_memory=True)


def test_a_system_that_refuses_is_believed(fresh):
    done = fresh("""
        import os, resource, sys, warnings, torch
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))
        if os.getuid() == 0:
            os.setuid(65534)  # root may lock what it likes
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            x = torch.ones(1 << 20).pin_memory()
        print(x.is_pinned(), x.sum().item(), "ulimit -l" in str(caught[0].message), "jax" in sys.modules)
    """, cold=True)
    assert done.stdout.split() == ["False", "1048576.0", "True", "False"]


def test_loader_with_pinned_memory():
    data = TensorDataset(torch.arange(12.0).reshape(6, 2), torch.arange(6))
    rows = []
    for x, y in DataLoader(data, batch_size=2, pin_memory=True):
        assert x.is_pinned() and y.is_pinned()
        rows.append((x.to("tpu", non_blocking=True) + y.to("tpu", non_blocking=True)[:, None]).cpu())
    assert torch.equal(torch.cat(rows), data.tensors[0] + data.tensors[1][:, None])


@pytest.fixture
def held_uploads(monkeypatch):
    """Background copies wait until the test lets them go."""
    from torchtpu.runtime import transfers

    go = threading.Event()
    original = transfers._put_copy

    def put_copy(source, device, owner):
        if owner is not None:
            assert go.wait(60)
        return original(source, device, owner)

    monkeypatch.setattr(transfers, "_put_copy", put_copy)
    yield go
    go.set()


def test_copies_from_pinned_memory_return_at_once(held_uploads):
    source = torch.arange(1 << 20, dtype=torch.float32).pin_memory()
    x = source.to("tpu", non_blocking=True)  # would never return if it waited
    y = x * 2 + 1  # recorded, not run
    held_uploads.set()
    assert torch.equal(y.cpu(), source * 2 + 1)


def test_a_256_mib_copy_is_not_done_when_it_returns():
    from torchtpu import _C

    source = torch.ones(64 * MIB).pin_memory()
    target = torch.empty(64 * MIB, device="tpu")
    under_way = []
    for _ in range(5):  # each: was it still on its way when the call had returned?
        target.copy_(source, non_blocking=True)
        under_way.append(not _C.to_array(target).done())
        torch.tpu.synchronize()
        assert _C.to_array(target).done()
    assert any(under_way)
    source.fill_(7)  # after synchronize the memory is the caller's again
    assert target[::MIB].sum().item() == 64
    assert target[-1].item() == 1


def test_the_source_is_kept_until_it_was_read(held_uploads):
    x = torch.full((1000,), 3.0).pin_memory().to("tpu", non_blocking=True)  # the pinned tensor is dropped here
    gc.collect()
    torch.zeros(1000).pin_memory()  # would land in its place
    held_uploads.set()
    assert x.sum().item() == 3000


def test_synchronize_waits_for_uploads(held_uploads):
    source = torch.ones(1000).pin_memory()
    x = source.to("tpu", non_blocking=True)
    event = torch.tpu.Event()
    event.record()
    assert not event.query()
    threading.Timer(0.2, held_uploads.set).start()
    torch.tpu.synchronize()
    assert event.query()
    source.zero_()
    assert x.sum().item() == 1000


def test_ordinary_memory_is_read_before_the_call_returns():
    source = torch.ones(1000)
    x = source.to("tpu", non_blocking=True)
    source.zero_()
    assert x.sum().item() == 1000
    pinned = torch.ones(1000).pin_memory()
    y = pinned.to("tpu")
    pinned.zero_()
    assert y.sum().item() == 1000


def test_downloads_have_arrived_when_they_return():
    x = torch.arange(1000.0, device="tpu")
    target = torch.empty(1000).pin_memory()
    target.copy_(x, non_blocking=True)
    assert target.sum().item() == 499500
    assert torch.equal(x.to("cpu", non_blocking=True), target)

