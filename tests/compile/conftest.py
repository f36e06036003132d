"""The count of programs, as in tests/record."""

from tests.record.conftest import count

__all__ = ["count"]
