"""Saving, loading, pickling and copying: what is saved here opens everywhere."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch


def saved(thing: object, **options: object) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(thing, file, **options)
    file.seek(0)
    return file


def things(device: str) -> dict[str, torch.Tensor]:
    x = torch.arange(12.0).reshape(3, 4).to(device)
    return {
        "whole": x, "view": x[1:, ::2], "half": x.to(torch.bfloat16), "wide": torch.tensor([2**60 + 1]).to(device),
        "complex": (x[0] * (1 + 2j)), "conjugate": (x[0] * (1 + 2j)).conj(), "empty": torch.empty(0, 3, device=device),
        "parameter": torch.nn.Parameter(x * 2), "recorded": x + 1, "bool": x > 3, "scalar": torch.tensor(5).to(device),
    }


def assert_same(got: dict[str, torch.Tensor], device: str, shared: bool = True) -> None:
    expected = things("cpu")
    assert got.keys() == expected.keys()
    for name, value in expected.items():
        found = got[name]
        assert found.device.type == device and found.dtype == value.dtype and torch.equal(found.cpu(), value), name
        assert type(found) is type(value) and found.requires_grad == value.requires_grad
    got["whole"][1, 2] = -5
    assert (got["view"][0, 1].item() == -5) == shared  # still a view of it


@pytest.mark.parametrize("origin", ["cpu", "tpu"])
@pytest.mark.parametrize("target", ["cpu", "tpu", "tpu:0", torch.device("tpu"), lambda storage, place: storage.tpu()])
def test_map_location(origin, target):
    device = "cpu" if target == "cpu" else "tpu"
    assert_same(torch.load(saved(things(origin)), map_location=target), device)


def test_without_map_location():
    assert_same(torch.load(saved(things("tpu"))), "tpu")
    assert_same(torch.load(saved(things("tpu")), map_location={"tpu:0": "cpu"}), "cpu")
    assert_same(torch.load(saved(things("tpu"), _use_new_zipfile_serialization=False), weights_only=True), "tpu")


def test_files(tmp_path):
    torch.save(things("tpu"), tmp_path / "file.pt")
    assert_same(torch.load(tmp_path / "file.pt", mmap=True, map_location="cpu"), "cpu")
    assert_same(torch.load(tmp_path / "file.pt", mmap=True, map_location="tpu"), "tpu")


def test_pickle_and_deepcopy():
    assert_same(pickle.loads(pickle.dumps(things("tpu"))), "tpu", shared=False)  # as on the CPU: pickle knows no storages
    originals = things("tpu")
    copies = copy.deepcopy(originals)
    assert_same(copies, "tpu")
    assert originals["whole"][1, 2].item() == 6  # untouched
    shallow = copy.copy(originals["whole"])
    shallow[0, 0] = 9
    assert originals["whole"][0, 0].item() == 9


def test_gradients_are_copied():
    leaf = torch.ones(2, device="tpu", requires_grad=True)
    (leaf * 3).sum().backward()
    twin = copy.deepcopy(leaf)
    twin.grad.mul_(2)
    assert leaf.grad.tolist() == [3, 3] and twin.grad.tolist() == [6, 6]


def test_models_and_optimizers():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2)).to("tpu")
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randn(5, 3, device="tpu")
    model(x).square().sum().backward()
    optimizer.step()
    file = saved({"model": model.state_dict(), "optimizer": optimizer.state_dict()})

    twin = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))
    twin_optimizer = torch.optim.AdamW(twin.parameters())
    state = torch.load(file, map_location="cpu")
    twin.load_state_dict(state["model"])
    twin_optimizer.load_state_dict(state["optimizer"])
    for mine, other in zip(model.state_dict().values(), twin.state_dict().values(), strict=True):
        assert torch.equal(mine.cpu(), other)
    model.load_state_dict(twin.state_dict())  # and back, across devices
    optimizer.load_state_dict(copy.deepcopy(twin_optimizer.state_dict()))
    moments = next(iter(optimizer.state.values()))
    assert moments["exp_avg"].device.type == "tpu" and moments["step"].device.type == "cpu"

    for net, opt, batch in ((model, optimizer, x), (twin, twin_optimizer, x.cpu())):
        opt.zero_grad()
        net(batch).square().sum().backward()
        opt.step()
    torch.testing.assert_close(model[0].weight.cpu(), twin[0].weight, rtol=1e-5, atol=1e-6)
    assert copy.deepcopy(model)(x).device.type == "tpu"


def test_a_file_opens_without_torchtpu(tmp_path, fresh):
    torch.save(things("tpu"), tmp_path / "file.pt")
    done = fresh("""
        import sys, torch
        values = torch.load("file.pt", map_location="cpu")
        assert "torchtpu" not in sys.modules
        print(values["view"].tolist(), values["parameter"].requires_grad, values["conjugate"].tolist()[1])
    """, cold=True, TORCH_DEVICE_BACKEND_AUTOLOAD="0", TORCHTPU_PLATFORM=None)
    assert done.stdout == "[[4.0, 6.0], [8.0, 10.0]] True (1-2j)\n"
