"""Views against torch on the CPU: random chains of view operators, and the paths that typical models take."""

from __future__ import annotations

import collections
import functools
import math

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from torchtpu.graph import views
from torchtpu.graph.view_plan import is_regular
from torchtpu.graph.views import View

DTYPES = {
    torch.float32: np.float32, torch.float64: np.float64, torch.float16: np.float16, torch.bfloat16: ml_dtypes.bfloat16,
    torch.int8: np.int8, torch.uint8: np.uint8, torch.int16: np.int16, torch.int32: np.int32, torch.int64: np.int64,
    torch.bool: np.bool_, torch.complex64: np.complex64, torch.complex128: np.complex128,
}
STATIC = functools.partial(jax.jit, static_argnums=1)
read, write = STATIC(views.read), STATIC(views.write)


@pytest.fixture(autouse=True)
def _x64():
    with jax.enable_x64(True):
        yield


def numpy_of(t: torch.Tensor) -> np.ndarray:
    """The values of a tensor, bit for bit."""
    t = t.detach().contiguous()
    if t.dtype == torch.bfloat16:
        return t.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return t.numpy().copy()


def view_of(t: torch.Tensor) -> View:
    return View(np.dtype(DTYPES[t.dtype]), tuple(t.shape), tuple(t.stride()), t.storage_offset())


def fill(shape: tuple[int, ...], dtype: torch.dtype, start: int = 1) -> torch.Tensor:
    """Distinct values, as far as the dtype has them."""
    flat = torch.arange(start, start + math.prod(shape), dtype=torch.float64)
    if dtype == torch.bool:
        flat = (flat * 7 % 5) > 2
    elif dtype.is_complex:
        flat = torch.complex(flat, -flat - 0.5)
    return flat.to(dtype).reshape(shape)


def same_bits(got: jax.Array, want: np.ndarray) -> None:
    got = np.asarray(got)
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    assert got.tobytes() == want.tobytes()


def check(base: torch.Tensor, view: torch.Tensor) -> str:
    """Read and write one view of ``base``, which owns its storage; the path taken."""
    array = jnp.asarray(numpy_of(base))
    described = view_of(view)
    same_bits(read(array, described), numpy_of(view))
    covered = views.covers(base.shape, described, array.dtype)
    if is_regular(described.dims):
        value = fill(tuple(view.shape), view.dtype, start=-90)
        if described.is_expanded:  # torch refuses to write these; the last index must win
            index = tuple(slice(None) if s else slice(-1, None) for s in view.stride())
            written, part = view[index], value[index]
        else:
            written, part = view, value
        before = base.clone()
        written.copy_(part)
        if base.dtype == torch.bool:  # a JAX bool is 0 or 1, torch keeps the byte
            base.copy_(base.view(torch.uint8) != 0)
        same_bits(write(array, described, jnp.asarray(numpy_of(value))), numpy_of(base))
        if covered:
            empty = jax.ShapeDtypeStruct(array.shape, array.dtype)
            same_bits(jax.jit(lambda v: views.write(empty, described, v))(jnp.asarray(numpy_of(value))), numpy_of(base))
        base.copy_(before)
    elif base.dtype == view.dtype:
        value = numpy_of(fill(tuple(view.shape), view.dtype, start=-90))
        want = numpy_of(base).ravel()
        for index in np.ndindex(*view.shape):  # in row-major order: the last one stays
            want[described.offset + np.dot(index, described.strides)] = value[index]
        same_bits(write(array, described, jnp.asarray(value)), want.reshape(base.shape))
    return views.kind(base.shape, array.dtype, described)


# Random chains. A draw that does not apply to the tensor at hand (a view of non-contiguous dims) leaves it as it is.


def _dim(t: torch.Tensor, draw, smallest: int = 0) -> int:
    if t.dim() == 0 or min(t.shape) < smallest:
        raise IndexError("no dimension to choose")
    return draw(st.integers(0, t.dim() - 1))


def _bit_view(t: torch.Tensor, draw) -> torch.Tensor:
    others = [d for d in DTYPES if d != torch.bool]  # bytes other than 0 and 1 are no bools
    return t.view(draw(st.sampled_from(others)))


def _slice(t: torch.Tensor, draw) -> torch.Tensor:
    dim = _dim(t, draw)
    start = draw(st.integers(0, t.shape[dim] // 2))
    stop = draw(st.sampled_from([t.shape[dim], t.shape[dim] - 1, start]))
    return t[(slice(None),) * dim + (slice(start, stop, draw(st.integers(1, 3))),)]


def _view(t: torch.Tensor, draw) -> torch.Tensor:
    sizes, left = [], t.numel()
    while left > 1 and len(sizes) < 4:
        sizes.append(draw(st.sampled_from([n for n in range(1, left + 1) if left % n == 0])))
        left //= sizes[-1]
    return t.view([*sizes, left])


def _unfold(t: torch.Tensor, draw) -> torch.Tensor:
    dim = _dim(t, draw)
    return t.unfold(dim, draw(st.integers(1, max(1, t.shape[dim] // 2))), draw(st.integers(1, 3)))


def _as_strided(t: torch.Tensor, draw) -> torch.Tensor:
    sizes = draw(st.lists(st.integers(1, 4), max_size=3))
    strides = [draw(st.integers(0, 9)) for _ in sizes]
    return t.as_strided(sizes, strides, draw(st.integers(0, 8)))


def _select(t: torch.Tensor, draw) -> torch.Tensor:
    dim = _dim(t, draw, smallest=1)
    return t.select(dim, draw(st.integers(0, t.shape[dim] - 1)))


def _diagonal(t: torch.Tensor, draw) -> torch.Tensor:
    first, second = draw(st.permutations(range(t.dim())))[:2]
    return t.diagonal(draw(st.integers(-2, 2)), first, second)


def _complex(t: torch.Tensor) -> torch.Tensor:
    if t.dtype == torch.float16:
        raise ValueError("JAX has no complex32")
    return torch.view_as_complex(t)


OPS = {
    "view": _view,
    "slice": _slice,
    "select": _select,
    "unfold": _unfold,
    "as_strided": _as_strided,
    "diagonal": _diagonal,
    "bits": _bit_view,
    "permute": lambda t, draw: t.permute(draw(st.permutations(range(t.dim())))),
    "transpose": lambda t, draw: t.transpose(_dim(t, draw), _dim(t, draw)),
    "expand": lambda t, draw: t.expand([draw(st.integers(2, 3)) if n == 1 else n for n in t.shape]),
    "squeeze": lambda t, draw: t.squeeze(),
    "unsqueeze": lambda t, draw: t.unsqueeze(draw(st.integers(0, t.dim()))),
    "real": lambda t, draw: torch.view_as_real(t),
    "complex": lambda t, draw: _complex(t),
    "half": lambda t, draw: t.chunk(2, dim=-1)[-1],
}
REGULAR = [name for name in OPS if name not in ("unfold", "as_strided", "expand")]


SHAPES = [(4, 6), (2, 3, 4), (6, 4, 2), (3, 2, 5, 4), (7, 7), (1, 6, 8), (24,), (5, 1, 7), (6, 6, 2, 2), (), (0, 3)]


@st.composite
def chains(draw, names: tuple[str, ...], dtypes: tuple[torch.dtype, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    shape = draw(st.sampled_from(SHAPES))
    base = fill(shape, draw(st.sampled_from(dtypes)))
    view = base
    for name in draw(st.lists(st.sampled_from(names), min_size=2, max_size=7)):
        try:
            view = OPS[name](view, draw)
        except (RuntimeError, IndexError, ValueError):
            continue
    return base, view


RUN = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


@RUN
@given(chains(tuple(OPS), tuple(DTYPES)))
def test_random_chains_of_every_op_agree_with_torch(case):
    with jax.enable_x64(True):
        check(*case)


@RUN
@given(chains(tuple(n for n in OPS if n not in ("bits", "real", "complex")), (torch.float32,)))
def test_random_chains_without_bit_views_agree_with_torch(case):
    with jax.enable_x64(True):
        check(*case)


@RUN
@given(chains(tuple(n for n in REGULAR if n != "bits"), (torch.float32, torch.complex64)))
def test_chains_of_injective_ops_are_never_gathered(case):
    with jax.enable_x64(True):
        assert check(*case).removeprefix("bits:") not in ("gather", "windows")


# What models do. (name, base shape, view of it, path)

B, T, H, D, V = 2, 8, 4, 6, 10
C = H * D
MODEL_VIEWS = [
    ("whole", (B, T, C), lambda x: x, "identity"),
    ("flatten tokens", (B, T, C), lambda x: x.view(B * T, C), "reshape"),
    ("unsqueeze", (B, T), lambda x: x[:, None, None, :], "reshape"),
    ("weight.t()", (C, V), lambda x: x.t(), "permute"),
    ("split heads", (B, T, C), lambda x: x.view(B, T, H, D).transpose(1, 2), "factor"),
    ("merge heads", (B, H, T, D), lambda x: x.transpose(1, 2), "permute"),
    ("k transposed", (B, H, T, D), lambda x: x.transpose(-2, -1), "permute"),
    ("k transposed, of tokens", (B, T, C), lambda x: x.view(B, T, H, D).permute(0, 2, 3, 1), "factor"),
    ("GPT-2 qkv.split", (B, T, 3 * C), lambda x: x.split(C, dim=2)[1], "slice"),
    ("GPT-2 q heads", (B, T, 3 * C), lambda x: x.split(C, dim=2)[0].view(B, T, H, D).transpose(1, 2), "factor"),
    ("GPT-2 v heads", (B, T, 3 * C), lambda x: x.chunk(3, dim=-1)[2].view(B, T, H, D).transpose(1, 2), "factor"),
    ("GPT-2 qkv of flat addmm", (B * T, 3 * C),
     lambda x: x.view(B, T, 3 * C).split(C, 2)[1].view(B, T, H, D).transpose(1, 2), "factor"),
    ("ViT qkv unbind", (B, T, 3 * C), lambda x: x.view(B, T, 3, H, D).permute(2, 0, 3, 1, 4).unbind(0)[1], "factor"),
    ("unbind of a stack", (3, B, H, T, D), lambda x: x.unbind(0)[1], "slice"),
    ("unbind, flattened", (3, B, H, T, D), lambda x: x[1].flatten(), "factor"),
    ("ViT patches", (B, 3, 8, 8), lambda x: x.unfold(2, 4, 4).unfold(3, 4, 4).permute(0, 2, 3, 1, 4, 5), "factor"),
    ("ViT flatten(2).transpose", (B, C, 3, 3), lambda x: x.flatten(2).transpose(1, 2), "factor"),
    ("ViT class token", (B, T, C), lambda x: x[:, 0], "slice"),
    ("LLaMA repeat_kv", (B, 2, T, D), lambda x: x[:, :, None].expand(B, 2, 3, T, D), "broadcast"),
    ("rotary first half", (B, H, T, D), lambda x: x[..., : D // 2], "slice"),
    ("rotary second half, of tokens", (B, T, C), lambda x: x.view(B, T, H, D).transpose(1, 2)[..., D // 2:], "factor"),
    ("rotary even", (B, H, T, D), lambda x: x[..., ::2], "slice"),
    ("rotary odd, of tokens", (B, T, C), lambda x: x.view(B, T, H, D)[..., 1::2], "factor"),
    ("rotary cos", (T, D), lambda x: x[None, None].expand(B, H, T, D), "broadcast"),
    ("view_as_complex", (B, T, D, 2), lambda x: torch.view_as_complex(x), "bits:identity"),
    ("shifted logits", (B, T, V), lambda x: x[:, :-1], "slice"),
    ("shifted labels", (B, T), lambda x: x[:, 1:], "slice"),
    ("last token", (B, T, V), lambda x: x[:, -1:], "slice"),
    ("rows of a batch, flattened", (B + 2, T, C), lambda x: x[1:-1].view(-1, C), "factor"),
    ("causal mask", (1, 1, T, T), lambda x: x[:, :, 2:5, :5], "slice"),
    ("position ids", (1, T), lambda x: x[:, :5], "slice"),
    ("Falcon q of groups", (B, T, 3 * 6 * D), lambda x: x.view(B, T, 3, 6, D)[..., :-2, :], "factor"),
    ("Falcon k of groups", (B, T, 3 * 6 * D), lambda x: x.view(B, T, 3, 6, D)[..., -2, :], "factor"),
    ("bias of a conv", (C,), lambda x: x.view(1, C, 1, 1).expand(B, C, 3, 3), "broadcast"),
    ("channels last", (B, 3, 3, C), lambda x: x.permute(0, 3, 1, 2), "permute"),
    ("pixel shuffle", (B, 4 * C, 3, 3), lambda x: x.view(B, C, 2, 2, 3, 3).permute(0, 1, 4, 2, 5, 3), "factor"),
    ("swin windows", (B, 8, 8, C), lambda x: x.view(B, 2, 4, 2, 4, C).permute(0, 1, 3, 2, 4, 5), "factor"),
    ("dilated rows", (B, 9, C), lambda x: x[:, ::2], "slice"),
    ("diagonal", (T, T), lambda x: x.diagonal(), "factor"),
    ("batched diagonal", (B, T, T), lambda x: x.diagonal(dim1=-2, dim2=-1), "factor"),
    ("offset diagonal", (T, T), lambda x: x.diagonal(2), "factor"),
    ("diagonal across a batch", (3, B, 3), lambda x: x.diagonal(0, 0, 2), "pad"),
    ("column of a flat matrix", (256 * 4,), lambda x: x.view(4, 256)[:, 7], "factor"),
    ("flat parameter piece", (1000,), lambda x: x[100:340].view(24, 10), "factor"),
    ("scalar of a vector", (T,), lambda x: x[3], "slice"),
    ("scalar", (), lambda x: x.view(1, 1), "reshape"),
    ("expanded scalar", (), lambda x: x.expand(3, 4), "broadcast"),
    ("empty", (B, T, C), lambda x: x[:, 4:4], "empty"),
    ("sliding windows", (B, 16), lambda x: x.unfold(1, 3, 1), "windows"),
    ("im2col", (B, 2, 6, 6), lambda x: x.unfold(2, 3, 1).unfold(3, 3, 1), "windows"),
    ("many windows", (300,), lambda x: x.unfold(0, 128, 1), "gather"),
]
DIRECT = {"reshape", "slice", "transpose", "broadcast_in_dim", "squeeze", "pad", "complex", "bitcast_convert_type"}
SELECT = {"select_n", "iota", "rem", "eq", "and", "ge", "lt"}
IN_PLACE = DIRECT | SELECT | {"dynamic_update_slice", "real", "imag", "stack"}


def _primitives(function, *shapes: tuple[tuple[int, ...], np.dtype]) -> collections.Counter:
    jaxpr = jax.make_jaxpr(function)(*(jax.ShapeDtypeStruct(*s) for s in shapes))
    return collections.Counter(eqn.primitive.name for eqn in jaxpr.eqns)


@pytest.mark.parametrize(("name", "shape", "make", "expected"), MODEL_VIEWS, ids=[row[0] for row in MODEL_VIEWS])
def test_views_of_models_take_the_expected_path(name, shape, make, expected):
    base = fill(shape, torch.float32)
    view = make(base)
    assert check(base, view) == expected, name
    if expected in ("windows", "gather"):
        return
    described = view_of(view)
    used = _primitives(lambda x: views.read(x, described), (shape, np.float32))
    assert used.keys() <= DIRECT, used
    assert used["transpose"] <= 1
    used = _primitives(lambda x, v: views.write(x, described, v), (shape, np.float32), (view.shape, described.dtype))
    assert used.keys() <= IN_PLACE, used


def test_a_split_of_heads_is_one_slice_one_reshape_and_one_transposition():
    x = torch.empty(B, T, 3 * C)
    view = view_of(x.split(C, dim=2)[1].view(B, T, H, D).transpose(1, 2))
    used = _primitives(lambda a: views.read(a, view), (x.shape, np.float32))
    assert {k: n for k, n in used.items() if k != "reshape"} == {"slice": 1, "transpose": 1}


def test_dimensions_that_a_view_does_not_split_stay():
    view = View(np.dtype("f4"), (4, 6), (48, 2), 12)
    jaxpr = str(jax.make_jaxpr(lambda a: views.read(a, view))(jnp.zeros((5, 4, 12), "f4")))
    assert "5,48" not in jaxpr
    assert "240" not in jaxpr


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_is_read_and_written_bit_for_bit(dtype):
    base = fill((3, 4, 6), dtype)
    check(base, base.transpose(0, 2)[1:, ::2])
    check(base, base.view(torch.uint8) if dtype != torch.bool else base.view(torch.uint8)[:, 1])
    check(base, base.flatten()[3:40].view(37))


def test_nan_payloads_and_negative_zero_survive():
    bits = np.array([0x7FC00001, 0xFFC12345, 0x80000000, 0x7F800000], np.uint32)
    array = jnp.asarray(bits.view(np.float32))
    as_int = View(np.dtype(np.uint32), (4,), (1,), 0)
    same_bits(read(array, as_int), bits)
    same_bits(write(jnp.zeros(4, jnp.float32), as_int, jnp.asarray(bits)), bits.view(np.float32))


def test_a_write_where_indices_meet_keeps_the_last_in_row_major_order():
    base = np.zeros(20, np.float32)
    view = View(np.dtype(np.float32), (5, 6), (2, 3), 1)
    value = np.arange(1, 31, dtype=np.float32).reshape(5, 6)
    want = base.copy()
    wide = View(np.dtype(np.float32), (3, 5), (2, 1), 1)
    for i, j in np.ndindex(3, 5):
        want[1 + 2 * i + j] = value.flat[5 * i + j]
    same_bits(write(jnp.asarray(base), wide, jnp.asarray(value.ravel()[:15].reshape(3, 5))), want)
    with pytest.raises(ValueError, match="view: expected at most 20 elements"):
        write(jnp.asarray(base), view, jnp.asarray(value))


def test_a_storage_whose_bytes_fill_no_whole_element_is_padded_and_cut():
    base = fill((7,), torch.uint8)
    described = View(np.dtype(np.int16), (3,), (1,), 0)
    same_bits(read(jnp.asarray(numpy_of(base)), described), numpy_of(base[:6].view(torch.int16)))
    got = write(jnp.asarray(numpy_of(base)), described, jnp.asarray([-1, -2, -3], jnp.int16))
    same_bits(got, np.array([255, 255, 254, 255, 253, 255, 7], np.uint8))


@pytest.mark.parametrize(("shape", "make", "expected"), [
    ((4, 6), lambda x: x, True),
    ((4, 6), lambda x: x.t(), True),
    ((4, 6), lambda x: x.view(2, 2, 6).transpose(0, 2), True),
    ((4, 6), lambda x: x.view(torch.int16), True),
    ((4, 6), lambda x: x[1:], False),
    ((1, 6), lambda x: x.expand(4, 6), False),
    ((4, 6), lambda x: x[:, :0], False),
    ((0, 6), lambda x: x, True),
    ((4, 6), lambda x: x.as_strided((4, 6), (1, 1)), False),
])
def test_covers(shape, make, expected):
    x = fill(shape, torch.float32)
    assert views.covers(shape, view_of(make(x)), np.dtype(np.float32)) is expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool, torch.complex64, torch.int64], ids=str)
@pytest.mark.parametrize("num_bytes", [0, 8, 9, 24, 64, 101])
def test_resize_keeps_the_leading_bytes(dtype, num_bytes):
    data = numpy_of(fill((2, 3), dtype))
    got = np.asarray(views.resize(jnp.asarray(data), num_bytes))
    old = data.tobytes()[:num_bytes]
    assert got.ndim == 1
    assert got.tobytes() == old + bytes(num_bytes - len(old))
    assert got.dtype == (data.dtype if num_bytes % data.itemsize == 0 else np.uint8)
