"""The bridge that was made at registration."""

from __future__ import annotations

from typing import Any

_the_bridge: Any = None


def set_bridge(bridge: Any) -> None:
    global _the_bridge
    _the_bridge = bridge


def bridge() -> Any:
    """The one bridge of the process."""
    return _the_bridge
