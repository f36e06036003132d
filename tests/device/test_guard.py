"""Current device, guards, properties, and device indices that do not exist."""

from __future__ import annotations

import pytest
import torch

from torchtpu.errors import DeviceIndexError, MixedDevicesError

MISSING = [
    lambda: torch.ones(2, device="tpu:3"),
    lambda: torch.empty(2, device="tpu:3"),
    lambda: torch.empty_strided((2, 2), (1, 2), device="tpu:3"),
    lambda: torch.ones(2).to("tpu:3"),
    lambda: torch.ones(2, device="tpu").to("tpu:3"),
    lambda: torch.ones(2).tpu(3),
    lambda: torch.tpu.set_device(3),
    lambda: torch.tpu.device(3).__enter__(),
    lambda: torch.tpu.synchronize(3),
    lambda: torch.tpu.get_device_name(3),
    lambda: torch.tpu.get_device_properties(3),
    lambda: torch.tpu.mem_get_info(3),
    lambda: torch.tpu.memory_allocated(3),
    lambda: torch.tpu.get_rng_state(3),
    lambda: torch.tpu.set_rng_state(torch.zeros(16, dtype=torch.uint8), 3),
    lambda: torch.tpu.default_stream(3),
    lambda: torch.tpu.current_stream(3),
    lambda: torch.tpu.Stream(3),
    lambda: torch.Generator("tpu:3"),
    lambda: torch.accelerator.set_device_index(3),
    lambda: torch.accelerator.synchronize(3),
    lambda: torch.accelerator.memory_allocated(3),
]


@pytest.mark.parametrize("use", MISSING)
def test_an_index_that_does_not_exist_is_refused(use):
    with pytest.raises(DeviceIndexError, match=r"tpu:3: expected an index below 1.*TORCHTPU_CPU_DEVICES"):
        use()
    assert torch.tpu.current_device() == 0


def test_the_last_possible_index_is_refused_too():
    with pytest.raises(DeviceIndexError, match="tpu:127"):
        torch.Generator("tpu:127")


def test_devices_of_another_type_are_refused():
    with pytest.raises(DeviceIndexError, match="expected a tpu device, got cpu"):
        torch.tpu.set_device("cpu")


def test_one_device_is_current():
    assert torch.tpu.is_available()
    assert torch.tpu.is_initialized()
    assert torch.tpu.device_count() == torch.accelerator.device_count() == 1
    assert torch.tpu.current_device() == torch.accelerator.current_device_index() == 0
    assert torch.accelerator.current_accelerator() == torch.device("tpu")
    assert torch.ones(1, device="tpu").device == torch.device("tpu", 0)
    torch.tpu.set_device("tpu:0")
    torch.tpu.set_device(torch.device("tpu"))
    torch.tpu.set_device(-1)  # as on CUDA: nothing
    assert torch.tpu.current_device() == 0


def test_context_managers():
    with torch.tpu.device("tpu"), torch.tpu.device(0), torch.tpu.device(None), torch.device("tpu"):
        assert torch.ones(2).device.type == "tpu"
    with torch.tpu.device_of(torch.ones(2)), torch.tpu.device_of(torch.ones(2, device="tpu")):
        assert torch.ones(2).device.type == "cpu"
    torch.set_default_device("tpu")
    try:
        assert torch.zeros(1).device.type == "tpu"
    finally:
        torch.set_default_device(None)


def test_properties():
    properties = torch.tpu.get_device_properties()
    assert properties.platform == "cpu" and properties.name == torch.tpu.get_device_name() == "cpu"
    assert properties.total_memory > 1 << 28
    assert torch.tpu.get_device_capability()["platform"] == "cpu"
    assert torch.tpu.is_bf16_supported()
    assert torch.bfloat16 in torch.tpu.get_amp_supported_dtype()
    assert torch.get_autocast_dtype("tpu") == torch.bfloat16


@pytest.mark.parametrize("use", [
    lambda a, b: a + b,
    lambda a, b: b + a,
    lambda a, b: torch.matmul(a, b),
    lambda a, b: torch.cat([a, b]),
    lambda a, b: a.add_(b),
    lambda a, b: torch.where(a > 0, a, b),
    lambda a, b: torch.add(a, a, out=b),
    lambda a, b: torch._foreach_add([a, a], [b, b]),
])
def test_tensors_of_two_devices_do_not_mix(use):
    a, b = torch.ones(2, 2, device="tpu"), torch.ones(2, 2)
    with pytest.raises(MixedDevicesError, match=r"aten::.*found at least two devices, (tpu:0 and cpu|cpu and tpu:0).*\.to\(\)"):
        use(a, b)


def test_host_numbers_do_mix():
    a = torch.arange(4, device="tpu")
    assert (a + torch.tensor(2.5)).tolist() == [2.5, 3.5, 4.5, 5.5]
    assert (torch.tensor(3) * a).tolist() == [0, 3, 6, 9]
    assert a[torch.tensor([3, 0])].tolist() == [3, 0]  # CPU indices, as on CUDA
