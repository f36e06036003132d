"""Numbers that change from step to step are inputs of the program; numbers that decide what is computed are part of its key."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import torchtpu.inspect


def run_twice(count, first: Callable[[], torch.Tensor], second: Callable[[], torch.Tensor]) -> int:
    """Programs that the second call makes beyond the first's."""
    first().cpu()
    before = count.programs
    second().cpu()
    return count.programs - before


@pytest.fixture
def x() -> torch.Tensor:
    return torch.arange(6.0).reshape(2, 3).to("tpu")


@pytest.mark.parametrize("use", [
    lambda x, n: x * n, lambda x, n: x + n, lambda x, n: n - x, lambda x, n: x / n, lambda x, n: torch.add(x, x, alpha=n),
    lambda x, n: x.addcmul(x, x, value=n), lambda x, n: x.lerp(x + 1, n), lambda x, n: x.masked_fill(x > 2, n),
    lambda x, n: torch._foreach_mul([x, x], n)[1], lambda x, n: torch._foreach_add([x, x], [n, 2 * n])[1],
    lambda x, n: x * torch.tensor(n), lambda x, n: torch.addmm(x, x, x.T @ x, beta=n),
])
def test_a_number_that_changes_makes_no_program(count, x, use):
    values = [3.5, -1.25, 7.0]
    results = [use(x, n).cpu() for n in values]
    assert count.programs == 1
    for n, result in zip(values, results, strict=True):
        torch.testing.assert_close(result, use(x.cpu(), n), rtol=1e-6, atol=0)


@pytest.mark.parametrize("use", [
    lambda x, n: x ** n, lambda x, n: x.clamp(max=n), lambda x, n: torch.nn.functional.layer_norm(x, (3,), eps=n),
    lambda x, n: x.sum(int(n) - 1), lambda x, n: x.roll(int(n), 0),
])
def test_a_number_that_decides_is_part_of_the_key(count, x, use):
    for n in (1.0, 2.0):
        torch.testing.assert_close(use(x, n).cpu(), use(x.cpu(), n), rtol=1e-5, atol=1e-6)
    assert count.programs <= 2


def test_alpha_at_its_default_is_static(count, x):
    """``a + b`` multiplies by nothing; another alpha is one more program, and a third is none."""
    for alpha in (1, 2, 0.5, 0, 3):
        assert torch.equal(torch.add(x, x, alpha=alpha).cpu(), torch.add(x.cpu(), x.cpu(), alpha=alpha))
    assert count.programs <= 3  # default, integers, floats


def test_beta_zero_ignores_the_added_tensor(count):
    nan, a = torch.full((2, 2), torch.nan), torch.eye(2)
    for beta in (0, 0.0):
        assert torch.equal(torch.addmm(nan.to("tpu"), a.to("tpu"), a.to("tpu"), beta=beta).cpu(), a)
    assert torch.addmm(nan.to("tpu"), a.to("tpu"), a.to("tpu"), beta=0.5).isnan().all().item()


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop])
def test_the_learning_rate_is_an_input(count, kind):
    p = torch.nn.Parameter(torch.ones(3, device="tpu"))
    reference = torch.nn.Parameter(torch.ones(3))
    optimizers = [kind([p], lr=0.1), kind([reference], lr=0.1)]
    for step in range(8):
        for optimizer, parameter in zip(optimizers, (p, reference), strict=True):
            optimizer.param_groups[0]["lr"] = 0.0 if step == 3 else 0.1 / (step + 1)
            optimizer.zero_grad()
            (parameter * parameter).sum().backward()
            optimizer.step()
        assert count.programs <= 2
        torch.testing.assert_close(p.detach().cpu(), reference.detach(), rtol=1e-6, atol=1e-7)


def test_numbers_that_are_equal_by_coincidence(count, x):
    """Equal uses of one operator share a slot; a program made while two of them happened to be equal is not reused wrongly."""

    def step(a: float, b: float) -> torch.Tensor:
        return (x * a + 1) * b

    cpu = x.cpu()
    for a, b in [(2.0, 2.0), (2.0, 3.0), (4.0, 4.0), (5.0, 6.0), (7.0, 7.0)]:
        assert torch.equal(step(a, b).cpu(), (cpu * a + 1) * b)
    assert count.programs == 2  # one for equal numbers, one for any


def test_equal_numbers_fit_the_general_program(count, x):
    """The other way round, equal numbers run in the program that was made for different ones."""
    cpu = x.cpu()
    for a, b in [(2.0, 3.0), (4.0, 4.0), (0.0, 0.0), (float("nan"), float("nan"))]:
        torch.testing.assert_close(((x * a + 1) * b).cpu(), (cpu * a + 1) * b, rtol=0, atol=0, equal_nan=True)
    assert count.programs == 1


def test_negative_zero_is_not_zero(count):
    one = torch.ones(1).to("tpu")
    cpu = torch.ones(1)
    for a, b in [(0.0, -0.0), (0.0, 0.0), (-0.0, -0.0), (-0.0, 0.0)]:
        both = torch.stack([one * a, one * b]).cpu()
        assert torch.equal(both.signbit(), torch.stack([cpu * a, cpu * b]).signbit())


@pytest.mark.parametrize("use", [
    lambda n: torch.empty(4, device="tpu").fill_(n), lambda n: torch.full((4,), n, device="tpu"),
    lambda n: torch.where(torch.arange(4, device="tpu") > 2, 0.5, n),
])
def test_a_fill_that_varies_is_promoted_once(count, use):
    """A number of fills are constants, and worth it; from then on it is an input."""
    results = [use(float(n)).cpu() for n in range(20)]
    assert all(float(r[0]) == n for n, r in enumerate(results))
    assert len({r.key for r in count.records}) <= 6


def test_kinds_of_numbers(count):
    """An int, a float and a complex number are different programs, and promote as PyTorch promotes."""
    integers = torch.arange(4).to("tpu")
    floats = integers.float()
    halves = floats.bfloat16()
    for n in (3, 2.5, 1 + 2j, True):
        for tensor in (integers, floats, halves):
            result, expected = tensor * n, tensor.cpu() * n
            assert result.dtype == expected.dtype
            assert torch.equal(result.cpu(), expected)
    big = 2**53 + 1
    assert (integers + big).cpu().tolist() == [big + i for i in range(4)]  # a double would round it
    assert (integers - (2**63 - 1)).cpu().tolist() == [i - (2**63 - 1) for i in range(4)]


def test_numbers_are_rounded_as_on_cpu(count):
    x = torch.tensor([1.0, 3.0])
    for tensor in (x, x.bfloat16(), x.half(), x.double()):
        for n in (0.1, 1 / 3, 1e-8):
            assert torch.equal((tensor.to("tpu") * n).cpu(), tensor * n)
            assert torch.equal((tensor.to("tpu") + n).cpu(), tensor + n)


def test_cpu_scalars(count):
    """0-dim CPU tensors mix with device tensors, promote like tensors without dimensions, and are inputs."""
    x = torch.arange(4).to("tpu")
    for value in (2, 3):
        assert torch.equal((x * torch.tensor(value)).cpu(), torch.arange(4) * value)
    assert count.programs == 1
    assert (x * torch.tensor(1.5)).dtype == torch.float32
    assert (x.bfloat16() * torch.tensor(1.5, dtype=torch.float64)).dtype == torch.bfloat16
    complex_scalar = torch.tensor(1 + 2j).conj()
    assert torch.equal((x.float() * complex_scalar).cpu(), torch.arange(4).float() * complex_scalar)
    assert torch.equal((x.float() - complex_scalar.imag).cpu(), torch.arange(4).float() - complex_scalar.imag)


def test_a_device_scalar_is_not_read(count, x):
    before = torchtpu.inspect.counters()["syncs"]
    y = x * x.sum() + x.mean()
    assert torchtpu.inspect.counters()["syncs"] == before
    torch.testing.assert_close(y.cpu(), x.cpu() * x.cpu().sum() + x.cpu().mean())


def test_the_default_dtype_is_part_of_the_key(count):
    x = torch.arange(3).to("tpu")
    assert (x * 0.5).dtype == torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        assert (x * 0.5).dtype == torch.float64
        assert (x / 3).cpu().tolist() == [0.0, 1 / 3, 2 / 3]
    finally:
        torch.set_default_dtype(torch.float32)
    assert (x * 0.5).dtype == torch.float32


def test_zeros_of_either_sign_are_two_numbers(count):
    def reciprocals(one: float, other: float) -> list[float]:
        x = torch.ones(2, device="tpu")
        return torch.stack([1 / x.mul(one), 1 / x.mul(other)])[:, 0].tolist()

    assert reciprocals(4.0, 2.0) == [0.25, 0.5]
    assert reciprocals(4.0, 4.0) == [0.25, 0.25]
    assert reciprocals(0.0, -0.0) == [float("inf"), float("-inf")]
