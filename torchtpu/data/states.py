"""Where a source stands, for sources that say so."""

from __future__ import annotations

import copy
from typing import Any

_PROTOCOLS = (("state_dict", "load_state_dict"), ("get_state", "set_state"))  # torchdata and Hugging Face; grain


class State:
    """Reads and writes where a source stands."""

    def __init__(self, source: Any, read: str, write: str) -> None:
        self._read, self._write = getattr(source, read), getattr(source, write)

    def read(self) -> Any:
        """What the source would need to go on from here; a copy, for some sources give what they go on to change."""
        return copy.deepcopy(self._read())

    def write(self, state: Any) -> None:
        """Let the source go on from there."""
        self._write(state)


def state_of(source: Any) -> State | None:
    """How to ask the source where it stands; None if it cannot say."""
    for read, write in _PROTOCOLS:
        if callable(getattr(source, read, None)) and callable(getattr(source, write, None)):
            return State(source, read, write)
    return None
