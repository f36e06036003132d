"""Random states of the devices. A state is 16 bytes: seed, then offset. Reading or setting one never waits for the device."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch._compile import _disable_dynamo  # as for torch.manual_seed: compiled code ends before and goes on after

from torchtpu import _C
from torchtpu.device.devices import _index, device_count


class _Generators(Sequence[torch.Generator]):
    """One generator a device, made when asked for."""

    def __getitem__(self, index: Any) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(index)  # ends iteration
        return _C.default_generator(index)

    def __len__(self) -> int:
        return max(device_count(), 1)


default_generators = _Generators()


@_disable_dynamo
def manual_seed(seed: int) -> None:
    """Seed the current device's generator."""
    default_generators[_C.current_device()].manual_seed(int(seed))


@_disable_dynamo
def manual_seed_all(seed: int) -> None:
    """Seed every device's generator."""
    for generator in default_generators:
        generator.manual_seed(int(seed))


@_disable_dynamo
def seed() -> None:
    """Seed the current device's generator from the system's entropy."""
    default_generators[_C.current_device()].seed()


@_disable_dynamo
def seed_all() -> None:
    """Seed every device's generator with one number from the system's entropy."""
    manual_seed_all(torch.default_generator.seed())


def initial_seed() -> int:
    """The seed of the current device's generator."""
    return default_generators[_C.current_device()].initial_seed()


def get_rng_state(device: Any = "tpu") -> torch.Tensor:
    """State of a device's generator, uint8[16] on the CPU."""
    return _C.default_generator(_index(device)).get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    """States of all devices' generators."""
    return [generator.get_state() for generator in default_generators]


@_disable_dynamo
def set_rng_state(new_state: torch.Tensor, device: Any = "tpu") -> None:
    """Set the state of a device's generator; ``new_state`` is uint8[16]."""
    _C.default_generator(_index(device)).set_state(new_state.cpu())


@_disable_dynamo
def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Set the states of all devices' generators."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)
