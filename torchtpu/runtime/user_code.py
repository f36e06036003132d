"""Finding the line of the user's program that is responsible."""

from __future__ import annotations

import os
import sys
from types import FrameType

_OURS = tuple(
    os.path.dirname(os.path.abspath(path)) + os.sep
    for path in (sys.modules["torch"].__file__ or "", os.path.dirname(__file__))  # the packages torch and torchtpu
) if "torch" in sys.modules else ()


_TYPED = ("<stdin>", "<string>", "<python-input-", "<ipython-input-")  # typed in by the user; other "files" are generated


def is_library(name: str) -> bool:
    """Whether a file belongs to PyTorch, JAX or torchtpu, or was generated."""
    return (name.startswith("<") and not name.startswith(_TYPED)) or name.startswith(_OURS) or f"{os.sep}jax{os.sep}" in name


def user_line() -> str:
    """``file:line`` of the innermost frame outside of PyTorch, JAX and torchtpu."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_library(frame.f_code.co_filename):
        frame = frame.f_back
    return "unknown" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def stack_level() -> int:
    """The ``stacklevel`` with which the caller's ``warnings.warn`` points at the user's line."""
    frame: FrameType | None = sys._getframe(1)
    level = 1
    while frame is not None and is_library(frame.f_code.co_filename):
        frame, level = frame.f_back, level + 1
    return level
