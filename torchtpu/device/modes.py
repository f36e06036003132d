"""How eager operators run: ``fused``, ``strict`` or ``debug``."""

from __future__ import annotations

from torchtpu import _C
from torchtpu.device.backing import bridge
from torchtpu.errors import InvalidFlagError

_MODES = ("fused", "strict", "debug")


class set_eager_mode:  # used as a function and as a context manager, like torch.set_grad_enabled
    """Choose how eager operators run; restores the previous mode when used as a context manager.

    ``fused`` records a program and runs it at a boundary, ``strict`` runs each operator by itself, ``debug`` also waits for it (and
    looks for NaN if ``TORCHTPU_CHECK_NAN`` is set), so that errors carry the user's line.

    Raises:
        InvalidFlagError: an unknown mode.
    """

    def __init__(self, mode: str) -> None:
        if mode not in _MODES:
            raise InvalidFlagError(name="eager mode", value=mode, expected="fused, strict or debug", fix=InvalidFlagError.ARGUMENT)
        self.previous = get_eager_mode()
        _C.set_eager_mode(_MODES.index(mode))

    def __enter__(self) -> None:
        """The mode was set by the constructor."""

    def __exit__(self, *_: object) -> None:
        _C.set_eager_mode(_MODES.index(self.previous))


def get_eager_mode() -> str:
    """The present mode."""
    bridge().read_mode()
    return _MODES[_C.eager_mode()]
