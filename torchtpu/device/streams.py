"""Streams and events.

Work runs in the order in which it is recorded, whatever stream it was put on, so every order that streams promise holds; streams
never overlap. Times between events are taken when the host sees the work before them finished.
"""

from __future__ import annotations

from typing import Any

import torch

from torchtpu.device.devices import _index


class Stream(torch.Stream):
    """A stream of a tpu device."""

    def __new__(cls, device: Any = None, priority: int = 0, **kwargs: Any) -> Stream:
        if kwargs:
            return super().__new__(cls, **kwargs)
        return super().__new__(cls, device=torch.device("tpu", _index(device)), priority=priority)


class _EventType(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch.Event) and instance.device.type == "tpu"


class Event(torch.Event, metaclass=_EventType):
    """An event of a tpu device; ``enable_timing`` makes ``elapsed_time`` (milliseconds, host-observed) available.

    Makes a plain ``torch.Event``: PyTorch takes no other class where two events meet.
    """

    def __new__(cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> torch.Event:
        return torch.Event("tpu", enable_timing=enable_timing, blocking=blocking, interprocess=interprocess)


class StreamContext:
    """Makes a stream current within a block; None does nothing."""

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream
        self.previous: torch.Stream | None = None

    def __enter__(self) -> None:
        if self.stream is not None:
            self.previous = current_stream(self.stream.device)
            set_stream(self.stream)

    def __exit__(self, *_: object) -> None:
        if self.previous is not None:
            set_stream(self.previous)


def stream(stream: torch.Stream | None) -> StreamContext:
    """Context manager that makes ``stream`` current."""
    return StreamContext(stream)


def set_stream(stream: torch.Stream) -> None:
    """Make ``stream`` the current one of its device."""
    torch.accelerator.set_stream(stream)


def current_stream(device: Any = None) -> torch.Stream:
    """The current stream of a device."""
    return torch.accelerator.current_stream(_index(device))


def default_stream(device: Any = None) -> torch.Stream:
    """The default stream of a device."""
    return torch.Stream(stream_id=0, device_index=_index(device), device_type=20)
