"""The count of programs, as in tests/record, and a fresh start for Dynamo."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tests.record.conftest import count

__all__ = ["count"]


@pytest.fixture
def without_gradients() -> Iterator[None]:
    """Nothing is known to Dynamo, and no graph is made for a backward pass."""
    torch._dynamo.reset()
    with torch.no_grad():
        yield
    torch._dynamo.reset()
