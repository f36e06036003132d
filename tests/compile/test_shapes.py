"""The policy of sizes: what it pads a size to, and what it refuses."""

from __future__ import annotations

import pytest

from torchtpu.compile import ShapePolicy, listed, multiples_of, power_of_two, set_shape_policy, shape_policy
from torchtpu.errors import ShapePolicyError


@pytest.mark.parametrize(("size", "padded"), [(1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (1000, 1024), (1025, 2048)])
def test_power_of_two(size, padded):
    assert power_of_two(size) == padded


@pytest.mark.parametrize(("size", "padded"), [(1, 48), (48, 48), (49, 96)])
def test_multiples(size, padded):
    assert multiples_of(48)(size) == padded


@pytest.mark.parametrize(("size", "padded"), [(1, 10), (10, 10), (11, 30), (31, None)])
def test_listed(size, padded):
    assert listed([30, 10])(size) == padded


def test_bounds():
    policy = ShapePolicy(smallest=16, largest=100)
    assert [policy.bucket(size) for size in (2, 16, 17, 65, 100, 101)] == [16, 16, 32, 100, 100, None]
    assert ShapePolicy(buckets=None).bucket(5) is None
    assert ShapePolicy(smallest=8, buckets=listed([4, 20])).bucket(3) == 20


@pytest.mark.parametrize("make", [
    lambda: ShapePolicy(exact=-1), lambda: ShapePolicy(smallest=0), lambda: ShapePolicy(smallest=8, largest=4),
    lambda: multiples_of(0), lambda: listed([]), lambda: listed([0, 4]),
    lambda: ShapePolicy(buckets=lambda size: size - 1).bucket(20)])
def test_what_makes_no_sense(make):
    with pytest.raises(ShapePolicyError):
        make()


def test_only_a_policy_is_set():
    before = shape_policy()
    with pytest.raises(ShapePolicyError, match="expected a ShapePolicy, got 64"):
        set_shape_policy(64)
    assert shape_policy() is before


def test_set_and_restored():
    default = shape_policy()
    with set_shape_policy(ShapePolicy(exact=7)):
        assert shape_policy().exact == 7
    assert shape_policy() == default == ShapePolicy()
