"""Fixtures of the data tests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tests.device.conftest import _nursery, fresh

__all__ = ["_nursery", "fresh"]

_DEADLINE_S = 60


def wait_until(condition: Callable[[], object]) -> None:
    """Give other threads the time to make it true."""
    deadline_s = time.monotonic() + _DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline_s, "it never came true"
        time.sleep(0.002)


def loading_threads() -> list[threading.Thread]:
    """The threads of prefetch that run."""
    return [thread for thread in threading.enumerate() if thread.name == "torchtpu-prefetch"]


@pytest.fixture(autouse=True)
def _threads_end() -> Iterator[None]:
    """No test leaves a thread behind."""
    assert not loading_threads()
    yield
    wait_until(lambda: not loading_threads())
