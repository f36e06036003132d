"""Every ``TORCHTPU_*`` environment variable: the only table of them.

Values are read at first use, never at import, so that a wrong one is told on the line that needs it.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torchtpu.errors import InvalidFlagError

PREFIX = "TORCHTPU_"


@dataclass(frozen=True)
class Flag:
    """One environment variable: how it parses, what it defaults to, and what it is for."""

    name: str
    parse: Callable[[str], Any]
    default: Any
    expected: str
    meaning: str


def _choice(*names: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in names:
            raise ValueError(text)
        return text

    return parse


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError(text)
    return value


def _device_count(text: str) -> int:
    value = _positive(text)
    if value > 127:  # PyTorch's device index is a signed byte
        raise ValueError(text)
    return value


def _switch(text: str) -> bool:
    return {"1": True, "true": True, "on": True, "0": False, "false": False, "off": False}[text.lower()]


FLAGS: dict[str, Flag] = {
    flag.name: flag
    for flag in (
        Flag("TORCHTPU_PLATFORM", _choice("tpu", "cuda", "cpu"), None, "tpu, cuda or cpu",
             "what the tpu device runs on; cpu and cuda emulate it"),
        Flag("TORCHTPU_CPU_DEVICES", _device_count, None, "a number from 1 to 127",
             "virtual devices of the cpu platform"),
        Flag("TORCHTPU_EAGER_MODE", _choice("fused", "strict", "debug"), "fused", "fused, strict or debug",
             "how eager operators run"),
        Flag("TORCHTPU_FALLBACK", _choice("warn", "error", "silent"), "warn", "warn, error or silent",
             "what an operator without a lowering does: run on the CPU and say so once, raise, or run silently (counted)"),
        Flag("TORCHTPU_CACHE", _switch, True, "1 or 0",
             "keep compiled programs on disk"),
        Flag("TORCHTPU_CACHE_DIR", str, None, "a directory",
             "where compiled programs are kept"),
        Flag("TORCHTPU_CACHE_MAX_BYTES", _positive, 4 << 30, "a positive number of bytes",
             "size at which the oldest compiled programs on disk are dropped"),
        Flag("TORCHTPU_MAX_PROGRAMS", _positive, 512, "a positive number",
             "compiled programs kept in memory"),
        Flag("TORCHTPU_MAX_NODES", _positive, 16384, "a positive number",
             "recorded operators at which a program is run without another reason"),
        Flag("TORCHTPU_PROGRESS", _switch, True, "1 or 0",
             "say on stderr what is being compiled, once it takes more than five seconds"),
        Flag("TORCHTPU_CHECK_NAN", _switch, False, "1 or 0",
             "in debug mode, check each result for NaN and infinity"),
    )
}


def get(name: str) -> Any:
    """The value of one flag.

    Raises:
        InvalidFlagError: the environment holds a value that the flag does not take.
    """
    flag = FLAGS[name]
    text = os.environ.get(name)
    if text is None or text == "":
        return flag.default
    try:
        return flag.parse(text)
    except (ValueError, KeyError):
        raise InvalidFlagError(name=name, value=text, expected=flag.expected, fix=InvalidFlagError.VALUE) from None


def check_environment() -> None:
    """Refuse unknown ``TORCHTPU_*`` variables and malformed values; called once, at first use of the device.

    Raises:
        InvalidFlagError: names the variable, what came, and what was expected.
    """
    for name in os.environ:
        if name.startswith(PREFIX) and name not in FLAGS:
            known = [flag.removeprefix(PREFIX) for flag in FLAGS]  # with the prefix, everything would look alike
            near = difflib.get_close_matches(name.removeprefix(PREFIX), known, n=1)
            raise InvalidFlagError(
                name=name, value=os.environ[name], fix=InvalidFlagError.NAME,
                expected=f"a known variable ({PREFIX}{near[0]}?)" if near else f"a known variable, one of {', '.join(FLAGS)}")
    for name in FLAGS:
        get(name)
