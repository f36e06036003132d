"""Fixtures of all tests here; the count of programs is that of tests/record."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tests.record.conftest import count
from torchtpu.compile import region, telling

__all__ = ["count"]


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    """Each test compiles anew, and is told anew what is not compiled."""
    torch._dynamo.reset()
    telling._told.clear()
    yield
    torch._dynamo.reset()


@pytest.fixture
def regions(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For every graph, or part of one, that is compiled in the test: whether it became one operator."""
    made: list[bool] = []
    make = region.make

    def counted(module: torch.fx.GraphModule) -> object:
        call = make(module)
        made.append(call is not None)
        return call

    monkeypatch.setattr(region, "make", counted)
    return made


@pytest.fixture
def without_gradients() -> Iterator[None]:
    """No graph is made for a backward pass."""
    with torch.no_grad():
        yield
