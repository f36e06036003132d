"""The name under which ``torch.load`` looks for our part of ``map_location="tpu"``."""

from __future__ import annotations

from typing import Any

from torchtpu import _C
from torchtpu.device.devices import _index


def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
    """The index that ``device`` names. Naming it asks for the device: it starts, and is available from then on."""
    from torchtpu.device.backing import bridge

    index = _index(device)
    bridge().start(index, _C.in_bad_fork())
    return index
