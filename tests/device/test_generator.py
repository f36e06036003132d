"""Random state: sixteen bytes, seed then offset, the same numbers in every mode."""

from __future__ import annotations

import struct

import pytest
import torch


def draws(generator: torch.Generator | None = None) -> list[torch.Tensor]:
    kwargs = {"device": "tpu", "generator": generator}
    x = torch.zeros(5, device="tpu")
    return [
        torch.rand(3, **kwargs).cpu(), torch.randn(4, **kwargs).cpu(), torch.randint(0, 1000, (5,), **kwargs).cpu(),
        torch.randperm(7, **kwargs).cpu(), x.uniform_(-1, 1, generator=generator).cpu(),
        torch.bernoulli(torch.full((9,), 0.5, device="tpu"), generator=generator).cpu()]


def assert_same(one: list[torch.Tensor], other: list[torch.Tensor]) -> None:
    for a, b in zip(one, other, strict=True):
        assert torch.equal(a, b)


def test_state_is_seed_then_offset():
    torch.tpu.manual_seed(1234)
    state = torch.tpu.get_rng_state()
    assert state.dtype == torch.uint8 and state.device.type == "cpu" and state.shape == (16,)
    assert struct.unpack("<QQ", bytes(state.tolist())) == (1234, 0)
    torch.rand(3, device="tpu")
    seed, offset = struct.unpack("<QQ", bytes(torch.tpu.get_rng_state().tolist()))
    assert seed == 1234 and offset > 0 and offset % 4 == 0
    assert torch.tpu.initial_seed() == 1234


def test_the_same_seed_gives_the_same_numbers():
    torch.manual_seed(7)  # seeds every device
    first = draws()
    torch.manual_seed(7)
    assert_same(first, draws())
    torch.tpu.manual_seed_all(8)
    assert not torch.equal(first[0], draws()[0])
    assert not torch.equal(torch.rand(3, device="tpu").cpu(), torch.rand(3, device="tpu").cpu())


@pytest.mark.parametrize("mode", ["strict", "debug"])
def test_the_same_numbers_in_every_mode(mode):
    torch.manual_seed(11)
    fused = draws()
    torch.manual_seed(11)
    with torch.tpu.set_eager_mode(mode):
        assert_same(fused, draws())


def test_setting_a_state_repeats_the_numbers():
    state = torch.tpu.get_rng_state()
    first = draws()
    torch.tpu.set_rng_state(state)
    assert_same(first, draws())
    torch.tpu.set_rng_state_all([state])
    assert_same(first, draws())
    assert torch.equal(torch.tpu.get_rng_state_all()[0], torch.tpu.get_rng_state())


def test_fork_rng_restores_the_state():
    before = torch.tpu.get_rng_state()
    with torch.random.fork_rng(device_type="tpu"):
        torch.manual_seed(3)
        torch.rand(5, device="tpu")
        assert not torch.equal(before, torch.tpu.get_rng_state())
    assert torch.equal(before, torch.tpu.get_rng_state())


def test_own_generators_leave_the_default_alone():
    before = torch.tpu.get_rng_state()
    generator = torch.Generator("tpu").manual_seed(5)
    assert generator.device == torch.device("tpu", 0)
    first = draws(generator)
    assert torch.equal(before, torch.tpu.get_rng_state())
    assert_same(first, draws(torch.Generator("tpu").manual_seed(5)))
    torch.manual_seed(5)
    assert_same(first, draws())


def test_states_of_generators():
    generator = torch.Generator("tpu").manual_seed(5)
    torch.rand(1, device="tpu", generator=generator)
    copy = generator.clone_state()
    assert torch.equal(copy.get_state(), generator.get_state())
    first = draws(generator)
    assert_same(first, draws(copy))  # a clone moves on by itself
    shared = generator.graphsafe_get_state()
    torch.rand(1, device="tpu", generator=generator)
    assert torch.equal(shared.get_state(), generator.get_state())  # this one moves with its origin
    other = torch.Generator("tpu")
    other.graphsafe_set_state(shared)
    torch.rand(1, device="tpu", generator=other)
    assert torch.equal(other.get_state(), generator.get_state())
    generator.set_offset(40)
    assert generator.get_offset() == 40 and generator.initial_seed() == 5
    assert generator.seed() != 5


@pytest.mark.parametrize(("state", "why"), [
    (torch.zeros(8, dtype=torch.uint8), "16 bytes"),
    (torch.zeros(5056, dtype=torch.uint8), "16 bytes"),
    (torch.zeros(16), "ByteTensor"),
    (torch.tensor([0] * 8 + [3] + [0] * 7, dtype=torch.uint8), "multiple of 4"),
])
def test_states_that_are_none(state, why):
    before = torch.tpu.get_rng_state()
    with pytest.raises((RuntimeError, TypeError), match=why):
        torch.tpu.set_rng_state(state)
    assert torch.equal(before, torch.tpu.get_rng_state())


def test_a_generator_of_another_device_is_refused():
    with pytest.raises(RuntimeError, match=r"'tpu' device type for generator but found 'cpu'"):
        torch.rand(3, device="tpu", generator=torch.Generator())


def test_there_is_one_default_generator_a_device():
    assert len(torch.tpu.default_generators) == 1
    assert torch.tpu._get_generator(torch.device("tpu")).initial_seed() == torch.tpu.initial_seed()
    torch.tpu.seed()
    first = torch.tpu.initial_seed()
    torch.tpu.seed_all()
    assert torch.tpu.initial_seed() != first


def test_new_numbers_need_no_new_program():
    from torchtpu import inspect

    torch.tpu.synchronize()
    torch.rand(6, device="tpu").cpu()
    compiles = inspect.counters()["compiles"]
    for seed in range(5):
        torch.manual_seed(seed)
        torch.rand(6, device="tpu").cpu()
    assert inspect.counters()["compiles"] == compiles
