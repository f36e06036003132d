"""Stable shapes: what is padded to which size, with what, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from torchtpu.data import listed, mask, multiples_of, power_of_two, prefetch, true_shape
from torchtpu.errors import BatchShapeError, PrefetchArgumentError

TEXTS = {"ids": torch.ones(3, 5, dtype=torch.int64), "mask": torch.ones(3, 5, dtype=torch.bool), "labels": torch.ones(3)}


def through(batch: Any, device: str = "tpu", **options: Any) -> Any:
    (result,) = prefetch([batch], device, **options)
    return result


@pytest.mark.parametrize("device", ["tpu", "cpu"])
def test_the_last_batch_gets_the_size_of_the_others(device):
    moved = through(TEXTS, device, pad={0: 4})
    assert {name: list(x.shape) for name, x in moved.items()} == {"ids": [4, 5], "mask": [4, 5], "labels": [4]}
    assert moved["ids"].tolist() == [[1] * 5] * 3 + [[0] * 5]
    assert moved["mask"][3].tolist() == [False] * 5
    assert {x.dtype for x in moved.values()} == {torch.int64, torch.bool, torch.float32}
    assert true_shape(moved["ids"]) == (3, 5)
    assert mask(moved["labels"]).tolist() == [True, True, True, False]
    assert mask(moved["ids"], 1).tolist() == [True] * 5
    assert mask(moved["ids"]).device.type == device


def test_what_has_its_size_is_left_alone():
    moved = through(TEXTS, pad={0: 3}, bucket={1: [5, 9]})
    assert moved["ids"].shape == true_shape(moved["ids"]) == (3, 5)


@pytest.mark.parametrize(("sizes", "expected"), [
    (power_of_two, 8), (multiples_of(6), 6), ([4, 7, 12], 7), ((12,), 12), (listed([6, 9]), 6), (lambda size: size + 1, 6)])
def test_buckets(sizes, expected):
    assert through(TEXTS["ids"], bucket={1: sizes}).shape == (3, expected)
    assert through(TEXTS["ids"], bucket={-1: sizes}).shape == (3, expected)


def test_keys_name_tensors():
    batch = [{"ids": torch.ones(2, 3), "image": np.ones((2, 3))}, torch.ones(2, 3)]

    def shapes(**options: Any) -> list[list[int]]:
        moved = through(batch, **options)
        return [list(x.shape) for x in (*moved[0].values(), moved[1])]

    assert shapes(bucket={"ids": {1: [8]}}) == [[2, 8], [2, 3], [2, 3]]
    assert shapes(bucket={"0.image": {1: [8]}}) == [[2, 3], [2, 8], [2, 3]]
    assert shapes(bucket={"1": {1: [8]}}) == [[2, 3], [2, 3], [2, 8]]
    assert shapes(bucket={1: [8], "image": {1: [4]}}) == [[2, 8], [2, 4], [2, 8]]  # the key goes before
    assert shapes(pad={0: 4}, bucket={"ids": {1: [8]}}) == [[4, 8], [4, 3], [4, 3]]


def test_fills_by_key():
    moved = through(TEXTS, pad={0: 4}, fill={"labels": -100, "mask": True})
    assert moved["labels"].tolist() == [1, 1, 1, -100]
    assert moved["mask"].all()
    assert moved["ids"][3].tolist() == [0] * 5
    assert through(torch.ones(1), pad={0: 3}, fill=float("inf")).tolist() == [1, float("inf"), float("inf")]


def test_strides_are_those_of_the_other_batches():
    images = torch.randn(3, 2, 4, 5).to(memory_format=torch.channels_last)
    moved = through(images, pad={0: 4}, bucket={3: [8]})
    assert moved.stride() == torch.empty(4, 2, 4, 8).to(memory_format=torch.channels_last).stride()
    assert torch.equal(moved[:3, :, :, :5].cpu(), images)
    assert moved.sum().item() == pytest.approx(images.sum().item(), abs=1e-4)
    assert true_shape(moved) == (3, 2, 4, 5)


def test_any_other_tensor_is_all_true():
    x = torch.ones(2, 3, device="tpu")
    assert true_shape(x) == (2, 3)
    assert mask(x, 1).tolist() == [True, True, True]
    with pytest.raises(IndexError):
        mask(x, 2)


@pytest.mark.parametrize(("options", "message"), [
    ({"pad": {0: 2}}, r"pad=\{0: \.\.\.\} of ids: expected a size of at least 3, which dim 0 has, got 2"),
    ({"bucket": {"ids": {1: [2, 4]}}}, r"bucket=\{'ids': \{1: \.\.\.\}\} of ids: expected a size of at least 5, .* got None"),
    ({"bucket": {1: lambda size: size / 2}}, "got 2.5"),
    ({"pad": {2: 2}}, r"expected a tensor with this key and dim in the batch, got ids: int64 \[3, 5\]"),
    ({"pad": {"id": {0: 4}}}, "expected a tensor with this key and dim"),
    ({"pad": {"labels": {1: 4}}}, "expected a tensor with this key and dim"),
    ({"pad": {0: 4}, "fill": {"label": -100}}, r"fill=\{'label': \.\.\.\}: expected this key in the batch"),
    ({"pad": {0: 4}, "fill": 1e40}, "fill of ids: expected a number that torch.int64 holds, got 1e\\+40"),
])
def test_batches_that_do_not_fit(options, message):
    with pytest.raises(BatchShapeError, match=message):
        through(TEXTS, **options)


def test_what_cannot_be_padded():
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    with pytest.raises(BatchShapeError, match=r"expected a dense tensor, got float32 nested"):
        through({"x": nested}, pad={0: 4})
    with pytest.raises(BatchShapeError, match=r"expected a dense tensor, got .*sparse"):
        through(torch.eye(3).to_sparse(), pad={0: 4})
    x = torch.ones(3, device="tpu")
    with pytest.raises(BatchShapeError, match=r"expected a tensor on the CPU, got .* on tpu:0"):
        through(x, pad={0: 4})
    assert through(x, pad={0: 3}).shape == (3,)


@pytest.mark.parametrize(("options", "message"), [
    ({"pad": 32}, "expected pad as a mapping from a dim to its size"),
    ({"pad": {0: 0}}, "expected pad"),
    ({"pad": {0: "4"}}, "expected pad"),
    ({"pad": {0.5: 4}}, "expected pad"),
    ({"pad": {"ids": 4}}, "expected pad"),
    ({"bucket": power_of_two}, "expected bucket as a mapping from a dim to a function, or a list, of sizes"),
    ({"bucket": {1: 64}}, "expected bucket"),
    ({"bucket": {1: []}}, "expected bucket"),
    ({"bucket": {1: "12"}}, "expected bucket"),
    ({"pad": {0: 4}, "bucket": {0: [4]}}, "expected each dim in pad or in bucket, got pad={0: ...} and bucket={0: ...}"),
    ({"pad": {0: 4}, "fill": "0"}, "expected a number, or a mapping from keys to numbers, as fill"),
    ({"pad": {0: 4}, "fill": {"ids": None}}, "expected a number"),
    ({"fill": -100}, "expected pad or bucket beside fill"),
])
def test_malformed_arguments_are_refused_at_once(options, message):
    with pytest.raises(PrefetchArgumentError) as raised:
        prefetch([], "cpu", **options)
    assert message in str(raised.value)
