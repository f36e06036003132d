"""Ctrl-C at a moment at which it can do no harm."""

from __future__ import annotations

import signal
import threading
from typing import Any

_came = False


def _note(number: int, frame: Any) -> None:
    global _came
    _came = True


def defer() -> Any:
    """Let SIGINT wait until `resume`; returns what handles it, or None where nothing is to be done.

    Only the main thread runs signal handlers, and only a handler in Python can raise.
    """
    if threading.current_thread() is not threading.main_thread():
        return None
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler) or handler is _note:
        return None
    signal.signal(signal.SIGINT, _note)
    return handler


def resume(handler: Any) -> bool:
    """Give SIGINT back to its handler; whether one came meanwhile."""
    global _came
    signal.signal(signal.SIGINT, handler)
    came, _came = _came, False
    return came
