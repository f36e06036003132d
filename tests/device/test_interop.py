"""Values that cross to JAX, NumPy and others: without a copy where it is ours to say, and never shared for writing."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import torchtpu
from torchtpu.errors import InteropError


def test_from_jax_is_no_copy():
    array = jnp.arange(12, dtype=jnp.float32).reshape(3, 4)
    x = torchtpu.from_jax(array)
    assert x.device == torch.device("tpu", 0) and x.dtype == torch.float32 and x.shape == (3, 4)
    assert torchtpu.to_jax(x).unsafe_buffer_pointer() == array.unsafe_buffer_pointer()
    x += 1
    assert x[0].tolist() == [1, 2, 3, 4] and array[0].tolist() == [0, 1, 2, 3]


def test_to_jax_is_no_copy_and_a_snapshot():
    x = torch.arange(6.0, device="tpu")
    torch.tpu.synchronize()
    array = torchtpu.to_jax(x)
    assert isinstance(array, jax.Array) and array.dtype == jnp.float32
    assert torchtpu.to_jax(x).unsafe_buffer_pointer() == array.unsafe_buffer_pointer()
    x.mul_(2)
    x[0] = 9
    assert array.tolist() == [0, 1, 2, 3, 4, 5] and x.tolist() == [9, 2, 4, 6, 8, 10]
    torch.tpu.synchronize()
    assert array.tolist() == [0, 1, 2, 3, 4, 5]  # not donated from under it
    assert jnp.sum(torchtpu.to_jax(x)).item() == 39


@pytest.mark.parametrize("dtype", [
    torch.bool, torch.uint8, torch.int16, torch.int32, torch.float16, torch.bfloat16, torch.float32, torch.complex64,
    torch.float8_e4m3fn])
def test_dtypes_survive(dtype):
    x = torch.tensor([0.0, 1, 2]).to(dtype).to("tpu")
    back = torchtpu.from_jax(torchtpu.to_jax(x))
    assert back.dtype == dtype and torch.equal(back.cpu().view(torch.uint8), x.cpu().view(torch.uint8))


def test_views_are_exported_as_what_they_show():
    x = torch.arange(12.0, device="tpu").reshape(3, 4)
    assert torchtpu.to_jax(x.t()[1:]).tolist() == x.t()[1:].tolist()
    assert torchtpu.to_jax(x[0].view(torch.int32)).dtype == jnp.int32
    z = torch.tensor([1 + 2j], device="tpu")
    assert torchtpu.to_jax(z.conj()).tolist() == [1 - 2j]
    assert torchtpu.to_jax(torch.empty(2, 0, device="tpu")).shape == (2, 0)
    assert torchtpu.to_jax(torch.empty(3, device="tpu")).tolist() == [0, 0, 0]
    assert torchtpu.to_jax(x.requires_grad_() * 2).shape == (3, 4)
    assert torchtpu.to_jax(torch.tensor(4, dtype=torch.int32, device="tpu")).item() == 4


@pytest.mark.parametrize("dtype", [torch.int64, torch.float64, torch.complex128])
def test_wide_values_need_the_users_x64_mode(dtype):
    x = torch.ones(2, dtype=dtype, device="tpu")
    with pytest.raises(InteropError, match=r"x64 mode is off.*jax_enable_x64"):
        torchtpu.to_jax(x)
    with jax.enable_x64(True):
        array = torchtpu.to_jax(x)
        assert array.dtype.itemsize == dtype.itemsize
        assert torchtpu.from_jax(array).dtype == dtype
    assert not jax.config.jax_enable_x64


@pytest.mark.parametrize(("use", "why"), [
    (lambda: torchtpu.to_jax(torch.ones(2)), "expected a tpu tensor, got one on cpu"),
    (lambda: torchtpu.from_jax(np.ones(2)), "expected a jax.Array, got ndarray"),
    (lambda: torchtpu.from_jax(jax.random.key(0)), "random keys"),
])
def test_what_cannot_cross(use, why):
    with pytest.raises(InteropError, match=why):
        use()


def test_inside_jit_there_is_no_array():
    with pytest.raises(InteropError, match="traced"):
        jax.jit(lambda a: torchtpu.from_jax(a))(jnp.ones(2))


def test_dlpack_is_a_snapshot_on_the_platforms_own_device():
    x = torch.arange(4.0, device="tpu")
    assert x.__dlpack_device__() == (1, 0)  # kDLCPU, because the tpu is emulated on it
    numpy, array, tensor = np.from_dlpack(x), jnp.from_dlpack(x), torch.from_dlpack(x)
    assert tensor.device.type == "cpu"
    capsule = torch.utils.dlpack.to_dlpack(x)
    x.fill_(7)
    x[0] = 8
    torch.tpu.synchronize()
    for seen in (numpy, array, tensor, torch.from_dlpack(capsule)):
        assert seen.tolist() == [0, 1, 2, 3]
    assert x.tolist() == [8, 7, 7, 7]
    tensor.add_(1)  # nor does a write of the importer reach us
    assert x.tolist() == [8, 7, 7, 7]


def test_dlpack_of_views_and_wide_values():
    x = torch.arange(6, device="tpu").reshape(2, 3)
    assert np.from_dlpack(x.t()).tolist() == [[0, 3], [1, 4], [2, 5]]
    assert np.from_dlpack(x).dtype == np.int64
    assert torch.from_dlpack(torch.ones(2, dtype=torch.bfloat16, device="tpu")).dtype == torch.bfloat16
    with pytest.raises((RuntimeError, BufferError), match="gradient"):
        np.from_dlpack(torch.ones(2, device="tpu", requires_grad=True))
    assert np.from_dlpack(torch.tensor([1 + 2j], device="tpu").conj()).tolist() == [1 - 2j]


def test_dlpack_of_cpu_tensors_is_untouched():
    x = torch.arange(3.0)
    numpy = np.from_dlpack(x)
    x[0] = 5
    assert numpy.tolist() == [5, 1, 2] and x.__dlpack_device__()[0] == 1


def test_arrays_protocols():
    x = torch.arange(3.0, device="tpu")
    with pytest.raises(TypeError, match="numpy"):
        np.asarray(x)
    assert torch.tensor([x[1], x[2]]).tolist() == [1, 2]
    assert torch.as_tensor(np.arange(3), device="tpu").tolist() == [0, 1, 2]
    assert [float(value) for value in x] == [0, 1, 2]
    assert 2 in x and len(x) == 3 and bool(x[1]) and x[int(x[2])].item() == 2
