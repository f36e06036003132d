"""What batches may be made of, and what comes of it on the device."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import types
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pack_sequence
from torch.utils import _pytree as pytree

from torchtpu.data import prefetch
from torchtpu.errors import UnsupportedDtypeError


def through(batch: Any, device: str = "tpu", **options: Any) -> Any:
    (result,) = prefetch([batch], device, **options)
    return result


class Pair(NamedTuple):
    x: Any
    y: Any


@dataclasses.dataclass(frozen=True)
class Example:
    x: Any
    name: str
    length: int = dataclasses.field(init=False, default=7)


class Encoding(collections.UserDict):
    """Like the BatchEncoding of transformers."""

    def __init__(self, data: dict[str, Any], encodings: str) -> None:
        super().__init__(data)
        self.encodings = encodings


class ForeignArray:
    """Like the tensors of another library."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.arange(3)


class DlpackArray:
    """Like the tensors of a library that knows no NumPy."""

    def __init__(self) -> None:
        self.tensor = torch.arange(3)

    def __dlpack__(self, **options: Any) -> Any:
        return self.tensor.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.tensor.__dlpack_device__()


def test_containers_keep_their_types():
    ones = torch.ones(2)
    batch = {
        "list": [ones, {"deep": (ones, ones)}], "pair": Pair(ones, np.ones(2)), "ordered": collections.OrderedDict(b=ones, a=ones),
        "default": collections.defaultdict(list, x=ones), "deque": collections.deque([ones], maxlen=3),
        "example": Example(ones, "one"), "encoding": Encoding({"ids": ones}, "kept"), "proxy": types.MappingProxyType({"x": ones}),
        3: ones}
    moved = through(batch)
    assert [(type(value), key) for key, value in moved.items()] == [(type(value), key) for key, value in batch.items()]
    leaves = [
        moved["list"][0], *moved["list"][1]["deep"], *moved["pair"], *moved["ordered"].values(), moved["default"]["x"],
        *moved["deque"], moved["example"].x, moved["encoding"]["ids"], moved["proxy"]["x"], moved[3]]
    assert {leaf.device for leaf in leaves} == {torch.device("tpu", 0)}
    assert all(leaf.tolist() == [1, 1] for leaf in leaves)
    assert list(moved["ordered"]) == ["b", "a"]
    assert moved["default"]["missing"] == []
    assert moved["deque"].maxlen == 3
    assert (moved["example"].name, moved["example"].length, moved["encoding"].encodings) == ("one", 7, "kept")
    assert batch["encoding"]["ids"] is batch["example"].x is ones  # the source's own objects are as they were


def test_what_is_no_tensor_comes_as_it_is():
    batch = [
        None, True, 3, 2.5, "text", b"bytes", np.float32(1.5), datetime.date(2026, 1, 1), [1, [2]], np.array(["a", "b"]),
        np.array([None]), torch.float32]
    moved = through([torch.ones(1), batch])[1]
    assert all(mine is theirs for mine, theirs in zip(moved, batch, strict=True))


def test_what_is_registered_as_a_pytree_is_one():
    class Box:
        def __init__(self, content: Any, label: Any) -> None:
            self.content, self.label = content, label

    pytree.register_pytree_node(Box, lambda box: ([box.content], box.label), lambda found, label: Box(next(iter(found)), label))
    try:
        moved = through({"box": Box(np.ones(3), "mine")})["box"]
    finally:
        pytree._deregister_pytree_node(Box)
    assert (type(moved), moved.label, moved.content.tolist()) == (Box, "mine", [1, 1, 1])


def test_objects_that_can_move_are_asked_to():
    packed = pack_sequence([torch.arange(3), torch.arange(2)])
    moved = through([packed])[0]
    assert type(moved) is type(packed)
    assert (moved.data.device.type, moved.batch_sizes.device.type) == ("tpu", "cpu")
    assert moved.data.tolist() == packed.data.tolist()


def test_batches_of_transformers():
    transformers = pytest.importorskip("transformers")
    moved = through(transformers.BatchEncoding({"input_ids": np.arange(3), "text": "x"}, n_sequences=1))
    assert type(moved) is transformers.BatchEncoding
    assert (moved.input_ids.device.type, moved["text"], moved.n_sequences) == ("tpu", "x", 1)


@pytest.mark.parametrize("dtype", [
    "bool", "uint8", "uint16", "uint64", "int8", "int64", "float16", "float32", "float64", "complex64", ml_dtypes.bfloat16,
    ml_dtypes.float8_e4m3fn])
def test_arrays_keep_their_dtype_and_bits(dtype):
    array = np.array([[0, 1, 1], [1, 0, 1]]).astype(dtype)
    moved = through(array)
    assert str(moved.dtype).removeprefix("torch.") == array.dtype.name
    assert moved.to(torch.complex64 if moved.is_complex() else torch.float32).tolist() == array.astype("complex64").tolist()


def read_only() -> np.ndarray:
    array = np.arange(6).reshape(2, 3)
    array.setflags(write=False)
    return array


@pytest.mark.parametrize("array", [
    read_only(), np.arange(5, -1, -1).reshape(2, 3)[::-1, ::-1], np.arange(6).reshape(2, 3).astype(">i8"),
    np.asfortranarray(np.arange(6).reshape(2, 3)),
    np.array([[(0, 1), (1, 1), (2, 1)], [(3, 1), (4, 1), (5, 1)]], dtype=[("number", "i8"), ("other", "i1")])["number"]],
    ids=range(5))
@pytest.mark.parametrize("device", ["tpu", "cpu"])
def test_arrays_lie_in_memory_as_they_like(array, device):
    assert through(array, device).tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("kind", [ForeignArray, DlpackArray])
def test_arrays_of_other_libraries(kind):
    assert through({"x": kind()})["x"].tolist() == [0, 1, 2]


def test_arrays_of_jax():
    import jax.numpy as jnp

    assert through([jnp.arange(3)])[0].tolist() == [0, 1, 2]


def test_a_dtype_without_a_tensor_is_refused():
    with pytest.raises(UnsupportedDtypeError, match="expected a dtype that PyTorch has"):
        through(np.ones(2, np.longdouble))


@pytest.mark.parametrize("tensor", [
    torch.arange(24).reshape(2, 3, 4), torch.arange(24).reshape(4, 3, 2).permute(2, 0, 1), torch.arange(24).reshape(2, 3, 4)[:, 1:],
    torch.arange(3).expand(2, 3), torch.tensor(5), torch.empty(0, 3), torch.tensor([1j, 2]).conj(),
    torch.arange(6).reshape(1, 6).t(), torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
    torch.ones(3).bfloat16()], ids=range(10))
@pytest.mark.parametrize("device", ["tpu", "cpu"])
def test_tensors_come_as_to_moves_them(tensor, device):
    moved, expected = through(tensor, device), tensor.to(device, copy=True)
    assert (moved.shape, moved.dtype, moved.device) == (expected.shape, expected.dtype, expected.device)
    assert [step for step, size in zip(moved.stride(), moved.shape, strict=True) if size > 1] == [
        step for step, size in zip(expected.stride(), expected.shape, strict=True) if size > 1]
    assert torch.equal(moved.cpu(), tensor)


def test_gradients_reach_what_the_source_made():
    x = torch.ones(2, requires_grad=True)
    (through([x])[0] * 3).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [3, 3]


def test_jagged_tensors():
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    moved = through([nested])[0]
    assert (moved.is_nested, moved.device.type) == (True, "tpu")
    assert [part.tolist() for part in moved.unbind()] == [[1, 1], [1, 1, 1]]


def test_what_is_on_the_device_stays_and_can_come_back():
    x = torch.ones(2, device="tpu")
    assert through([x])[0].data_ptr() == x.data_ptr()
    assert through([x], "cpu")[0].tolist() == [1, 1]


@pytest.mark.parametrize("device", ["tpu", "cpu"])
@pytest.mark.parametrize("as_array", [False, True])
def test_a_source_may_use_its_memory_again(device, as_array):
    def source() -> Any:
        memory = torch.empty(1000)
        for number in range(6):
            memory.fill_(number)
            yield memory.numpy() if as_array else memory

    batches = list(prefetch(source(), device, depth=6))
    assert [batch.unique().tolist() for batch in batches] == [[number] for number in range(6)]


def test_a_batch_can_be_written_and_trained():
    """It is a tensor like any other, in whatever order it lies in memory."""
    moved = through(torch.arange(6.0).reshape(2, 3).t())
    moved.requires_grad_()
    (moved * 2).sum().backward()
    with torch.no_grad():
        moved += moved.grad
    assert moved.tolist() == [[2, 5], [3, 6], [4, 7]]


def test_another_device_of_the_process(fresh):
    done = fresh("""
        import torch
        from torchtpu.data import prefetch

        torch.tpu.set_device(1)
        print([[x.device.index for x in prefetch([torch.ones(2)], device)] for device in ("tpu", "tpu:0", 1)])
    """, TORCHTPU_CPU_DEVICES="2")
    assert done.stdout == "[[1], [0], [1]]\n"
