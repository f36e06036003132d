"""What a program will need on a TPU, asked of libtpu's compiler on a machine without one."""

from __future__ import annotations

from torchtpu.estimate.ahead_of_time import Report, compile_for, last_program

__all__ = ["Report", "compile_for", "last_program"]
