"""What comes out of ``torchtpu.export`` beside CPU PyTorch; what it refuses, and how."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import Dim

import torchtpu.export
from torchtpu.errors import ArtifactError, ExportError, MissingPackageError, TopologyError


class Of(nn.Module):
    """A function as a module."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *arguments: Any) -> Any:
        return self.function(*arguments)


def saved(module: nn.Module, arguments: tuple[Any, ...], path: Path, shapes: Any = None, **options: Any) -> Any:
    """The loaded program of a module. One platform, unless asked: lowering for three is tested elsewhere."""
    program = torch.export.export(module, arguments, dynamic_shapes=shapes)
    return torchtpu.export.load(torchtpu.export.save(program, path / "program", **{"platforms": ("cpu",), **options}))


def close(found: Any, expected: torch.Tensor) -> None:
    assert tuple(found.shape) == tuple(expected.shape)
    np.testing.assert_allclose(np.asarray(found), expected.detach().numpy(), rtol=2e-5, atol=2e-5)


def views(x: torch.Tensor, index: torch.Tensor) -> list[torch.Tensor]:
    """Every view that is written out for open sizes, and operators that take a size as a number."""
    batch, width = x.shape[0], x.shape[1]
    halves = x.split(2, dim=2)
    return [
        x.permute(2, 0, 1), x.transpose(0, 1), x.unsqueeze(1), x.unsqueeze(1).squeeze(1), x.unsqueeze(1).squeeze(),
        x[:, 1:], x[:, :-1], x[1:, ::2], x[:, -1], x.select(2, 1),
        x[:1].expand(batch, -1, -1), x.reshape(batch * width, 4), x.reshape(-1), *halves,
        *x.split_with_sizes([1, 3], 2), *x.unbind(2), x[:, 0].t(), x.detach() * batch, torch.arange(width), torch.arange(1, batch),
        torch.full((batch, 2), width), x + torch.arange(width).unsqueeze(1), x[index, index], x.narrow(1, 0, 2), x.mean(0) / batch,
        torch.zeros(batch, width), x.cumsum(1), torch.cat([x, x], 1), x.repeat(2, 1, 1), x.sum((1, 2)).softmax(0),
        torch.tril(x.sum(2)[:, :2]), nn.functional.pad(x, (1, 1)), x.flip(0), x.amax(1), x.argmax(0),
    ]


def test_open_sizes(tmp_path):
    open_ = {0: Dim("batch", min=3, max=99), 1: Dim("width", min=3)}
    program = saved(Of(views), (torch.ones(3, 5, 4), torch.tensor([0, 1])), tmp_path, ((open_, None),))
    for batch, width in ((4, 3), (7, 6)):
        x = torch.randn(batch, width, 4)
        expected = views(x, torch.tensor([-1, 2]))
        for found, value in zip(program(x.numpy(), np.array([-1, 2])), expected, strict=True):
            close(found, value)


def attention(x: torch.Tensor, mask: torch.Tensor) -> list[torch.Tensor]:
    """[B, L, 8] and [L, L] in every form that the operator takes."""
    f = nn.functional.scaled_dot_product_attention
    heads = x.unflatten(2, (4, 2)).transpose(1, 2)
    few = heads[:, :2]
    return [
        f(x, x, x), f(x, x, x, is_causal=True, scale=0.3), f(x, x, x, mask), f(x, x, x, mask.float().expand(len(x), -1, -1)),
        f(heads, heads, heads, mask), f(heads, few, few, is_causal=True, enable_gqa=True), f(x[0], x[0], x[0]),
        f(heads[None], heads[None], heads[None], mask), f(heads, heads, heads).transpose(1, 2).contiguous().view(-1, 8),
    ]


def test_attention(tmp_path):
    program = saved(Of(attention), (torch.ones(2, 5, 8), torch.ones(5, 5).bool()), tmp_path)
    x, mask = torch.randn(2, 5, 8), torch.rand(5, 5) > 0.4
    for found, value in zip(program(x.numpy(), mask.numpy()), attention(x, mask), strict=True):
        close(found, value)


class Narrow(nn.Module):
    """Weights in dtypes that NumPy does not have."""

    def __init__(self) -> None:
        super().__init__()
        self.narrow = nn.Parameter(torch.tensor([[1.5, -2.0]], dtype=torch.bfloat16))
        self.register_buffer("narrower", torch.tensor([0.5, 3.0]).to(torch.float8_e4m3fn))
        self.register_buffer("wide", torch.tensor(1 + 2j, dtype=torch.complex128))

    def forward(self, x: torch.Tensor) -> Any:
        return x * self.narrow.float() + self.narrower.float(), (self.narrow + self.narrow,), self.wide * 2


def test_weights_in_every_dtype(tmp_path):
    sum_, (half,), double = saved(Narrow(), (torch.ones(2),), tmp_path)(np.array([1, 2], np.float32))
    assert sum_.tolist() == [[2.0, -1.0]] and half.dtype.name == "bfloat16" and half.tolist() == [[3.0, -4.0]]
    assert double.dtype == np.complex128 and complex(double) == 2 + 4j


def test_random_numbers_follow_the_seed(tmp_path):
    program = saved(Of(lambda x: nn.functional.dropout(x, 0.25) + torch.rand_like(x) * 0), (torch.ones(4000),), tmp_path)
    x = np.ones(4000, np.float32)
    first, second = program(x), program(x)
    program.seed = 0
    assert (np.asarray(program(x)) == np.asarray(first)).all() and (np.asarray(first) != np.asarray(second)).any()
    assert set(np.unique(first)) == {np.float32(0), np.float32(1 / 0.75)}
    assert abs(np.count_nonzero(first) / 4000 - 0.75) < 0.04  # six standard deviations


def test_fixed_arguments_and_nesting_are_checked(tmp_path):
    module = Of(lambda x, scale, extra: [x["a"] * scale, x["b"]])
    program = saved(module, ({"a": torch.ones(2), "b": torch.ones(1)}, 3, None), tmp_path)
    found = program({"b": [7.0], "a": [1, 2]}, 3, None)
    assert type(found) is list and found[0].tolist() == [3, 6] and found[1].tolist() == [7]
    with pytest.raises(ValueError, match="fixed by the export, got 4"):
        program({"a": [1, 2], "b": [7]}, 4, None)
    with pytest.raises(ValueError, match=r"expected the names \['a', 'b'\]"):
        program({"a": [1, 2]}, 3, None)


@pytest.mark.parametrize("function, shapes, message", [
    (lambda x: x.nonzero(), None, r"aten::nonzero at .*test_programs.py:\d+: cannot be exported"),
    (lambda x: torch.full((2,), x.shape[0] ** 0.5), ({0: Dim("batch")},), r"sym_float, .* at .*test_programs.py:\d+: cannot"),
    (lambda x: x.as_strided((x.shape[0],), (2,)), ({0: Dim("batch")},), r"aten::as_strided at .*test_programs.py:\d+: cannot"),
], ids=["values decide the shape", "a fraction of an open size", "a view that is not written out"])
def test_what_cannot_be_exported_is_named(tmp_path, function, shapes, message):
    with pytest.raises(ExportError, match=message):
        saved(Of(function), (torch.ones(4, 2),), tmp_path, (shapes,) if shapes else None)


def test_a_path_that_is_taken(tmp_path):
    program = torch.export.export(Of(torch.neg), (torch.ones(2),))
    target = torchtpu.export.save(program, tmp_path / "program", platforms=("cpu",))
    with pytest.raises(ArtifactError, match="overwrite=True"):
        torchtpu.export.save(program, target)
    torchtpu.export.save(torch.export.export(Of(torch.abs), (torch.ones(2),)), target, platforms=("cpu",), overwrite=True)
    assert torchtpu.export.load(target)([-3, 2]).tolist() == [3, 2]
    (tmp_path / "other").mkdir()
    with pytest.raises(ArtifactError, match="Choose another path"):
        torchtpu.export.save(program, tmp_path / "other", overwrite=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["other", "program"]  # nothing half-written is left


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    there = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "safetensors" else there(name, *rest))
    with pytest.raises(MissingPackageError, match=r"torchtpu\[export\]"):
        torchtpu.export.save(torch.export.export(Of(torch.neg), (torch.ones(2),)), tmp_path / "program")


@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="needs libtpu's compiler (pip install torchtpu[tpu])")
def test_compiling_for_a_chip_that_is_not_here(tmp_path):
    with FakeTensorMode():  # the weights need not exist
        program = torch.export.export(
            nn.Linear(512, 256), (torch.ones(4, 512),), dynamic_shapes=({0: Dim("batch", min=2)},), strict=False)
    report = torchtpu.export.compile_for(program, "v5e:2x2", sizes={"input_dim0": 64})
    assert report.device_kind == "TPU v5 lite"
    assert report.argument_bytes >= (512 * 256 + 256 + 64 * 512) * 4 and report.output_bytes >= 64 * 256 * 4
    assert 2 * 64 * 512 * 256 <= report.flops < 2.1 * 64 * 512 * 256
    with pytest.raises(TopologyError, match=r"\['input_dim0'\], got \[\]"):
        torchtpu.export.compile_for(program)
    with pytest.raises(ExportError, match="no value"):
        torchtpu.export.save(program, tmp_path / "program", platforms=("cpu",))
    with pytest.raises(ArtifactError, match="expected a program for tpu, found one for cpu"):
        torchtpu.export.compile_for(torchtpu.export.save(
            torch.export.export(Of(torch.neg), (torch.ones(2),)), tmp_path / "other", platforms=("cpu",)))
    with pytest.raises(ArtifactError, match=r"no manifest\.json"):
        torchtpu.export.compile_for(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["manifest.json", "weights.safetensors", "program.jax_export"])
def test_a_damaged_file_is_named(tmp_path, name):
    """The readers' own errors speak of offsets and keys."""
    saved(nn.Linear(2, 2), (torch.ones(1, 2),), tmp_path)
    damaged = tmp_path / "program" / name
    damaged.write_bytes(damaged.read_bytes()[:40])
    with pytest.raises(ValueError, match=f"{name} is damaged"):
        torchtpu.export.load(tmp_path / "program")
    if name != "weights.safetensors":
        with pytest.raises(ArtifactError, match=f"{name} is damaged"):
            torchtpu.export.compile_for(tmp_path / "program")


def test_arguments_from_elsewhere(tmp_path):
    """A tensor of PyTorch is an array; None is not nan."""
    program = saved(nn.Tanh(), (torch.ones(()),), tmp_path)
    close(program(torch.tensor(0.5)), torch.tensor(0.5).tanh())
    with pytest.raises(ValueError, match="expected an array of float32, got None"):
        program(None)


@pytest.mark.parametrize("platforms", [[], "tpu", ["abacus"]], ids=str)
def test_platforms_that_are_none(tmp_path, platforms):
    with pytest.raises(ExportError, match="A list of some of"):
        saved(nn.Tanh(), (torch.ones(2),), tmp_path, platforms=platforms)


def test_a_module_that_was_not_exported(tmp_path):
    with pytest.raises(ExportError, match=r"type Tanh: .* torch\.export\.export"):
        torchtpu.export.save(nn.Tanh(), tmp_path / "program")  # type: ignore[arg-type]


def test_a_link_to_nowhere_is_a_taken_path(tmp_path):
    (tmp_path / "program").symlink_to(tmp_path / "nowhere")
    with pytest.raises(ArtifactError, match="Set overwrite=True"):
        saved(nn.Tanh(), (torch.ones(2),), tmp_path)
