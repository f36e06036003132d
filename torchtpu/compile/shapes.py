"""How many sizes a compiled graph may have: exact ones for the first few, then buckets that many sizes share.

A graph that was traced with open sizes is compiled by XLA for each size that comes. After the first few sizes, tensors are padded
to the next bucket instead, where that provably changes no number that the graph returns (padding.py).
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from torchtpu.errors import ShapePolicyError

Buckets = Callable[[int], int | None]
"""A size to the size that it is padded to; None leaves it exact."""


def power_of_two(size: int) -> int:
    """The next power of two: at most twice the work, and as many programs as the sizes have bits."""
    return 1 << max(size - 1, 0).bit_length()


def multiples_of(step: int) -> Buckets:
    """Buckets at every multiple of ``step``.

    Raises:
        ShapePolicyError: ``step`` is below 1.
    """
    if step < 1:
        raise ShapePolicyError(what=f"multiples_of expected a step of at least 1, got {step}")
    return lambda size: -(-size // step) * step


def listed(sizes: Iterable[int]) -> Buckets:
    """Buckets at these sizes; what is larger than all of them stays exact.

    Raises:
        ShapePolicyError: there is none, or one is below 1.
    """
    ordered = sorted(sizes)
    if not ordered or ordered[0] < 1:
        raise ShapePolicyError(what=f"listed expected sizes of at least 1, got {ordered}")

    def bucket(size: int) -> int | None:
        place = bisect.bisect_left(ordered, size)
        return ordered[place] if place < len(ordered) else None

    return bucket


@dataclass(frozen=True)
class ShapePolicy:
    """Which sizes a graph with open sizes is compiled for.

    Attributes:
        exact: so many different combinations of sizes a graph are compiled as they are; these stay exact.
        buckets: a size to its bucket, such as ``power_of_two``, ``multiples_of(64)`` or ``listed([128, 512])``; None: always exact.
        smallest: the smallest bucket.
        largest: sizes above this one stay exact, and no bucket is larger; None: no bound.
        strict: whether a graph that cannot be padded raises ``PaddingError``, which says why; else it stays exact.

    Raises:
        ShapePolicyError: a number that makes no sense.
    """

    exact: int = 4
    buckets: Buckets | None = power_of_two
    smallest: int = 8
    largest: int | None = None
    strict: bool = False

    def __post_init__(self) -> None:
        if self.exact < 0 or self.smallest < 1 or (self.largest is not None and self.largest < self.smallest):
            raise ShapePolicyError(what=f"expected exact >= 0, smallest >= 1 and largest >= smallest, got {self}")

    def bucket(self, size: int) -> int | None:
        """What a size is padded to; None if it stays as it is.

        Raises:
            ShapePolicyError: ``buckets`` returns less than the size.
        """
        if self.buckets is None or (self.largest is not None and size > self.largest):
            return None
        padded = self.buckets(max(size, self.smallest))
        if padded is None:
            return None
        if padded < size:
            raise ShapePolicyError(what=f"buckets({size}) is {padded}; expected at least the size itself")
        return padded if self.largest is None else min(padded, self.largest)


_policy = ShapePolicy()


def shape_policy() -> ShapePolicy:
    """The present policy."""
    return _policy


class set_shape_policy:  # used as a function and as a context manager, like torch.tpu.set_eager_mode
    """Choose the policy of all graphs, also of those that are compiled already; as a context manager, restores the previous one.

    Raises:
        ShapePolicyError: it is no ``ShapePolicy``.
    """

    def __init__(self, policy: ShapePolicy) -> None:
        global _policy
        if not isinstance(policy, ShapePolicy):
            raise ShapePolicyError(what=f"set_shape_policy expected a ShapePolicy, got {policy!r}")
        self.previous = _policy
        _policy = policy

    def __enter__(self) -> None:
        """The policy was set by the constructor."""

    def __exit__(self, *_: object) -> None:
        global _policy
        _policy = self.previous
