"""fused, strict and debug: when work runs, and what an error then says."""

from __future__ import annotations

import pytest
import torch

from torchtpu import _C, inspect
from torchtpu.errors import InvalidFlagError, NanError

THIS_FILE = __file__


def here(x: torch.Tensor) -> torch.Tensor:
    return torch.log(x)  # the line that errors are to name


HERE = f"{THIS_FILE}:{here.__code__.co_firstlineno + 1}"


def test_as_a_function_and_as_a_context_manager():
    assert torch.tpu.get_eager_mode() == "fused"
    with torch.tpu.set_eager_mode("strict"):
        assert torch.tpu.get_eager_mode() == "strict"
        with torch.tpu.set_eager_mode("fused"):
            assert torch.tpu.get_eager_mode() == "fused"
        assert torch.tpu.get_eager_mode() == "strict"
    assert torch.tpu.get_eager_mode() == "fused"
    with pytest.raises(KeyError), torch.tpu.set_eager_mode("debug"):
        raise KeyError
    assert torch.tpu.get_eager_mode() == "fused"
    torch.tpu.set_eager_mode("strict")
    assert torch.tpu.get_eager_mode() == "strict"
    torch.tpu.set_eager_mode("fused")


def test_unknown_modes():
    with pytest.raises(InvalidFlagError, match="eager mode='lazy': expected fused, strict or debug"):
        torch.tpu.set_eager_mode("lazy")
    assert torch.tpu.get_eager_mode() == "fused"


def test_fused_records_and_strict_runs():
    x = torch.ones(3, device="tpu")
    torch.tpu.synchronize()
    y = x + 1
    assert _C.state(y) == "pending"
    with torch.tpu.set_eager_mode("strict"):
        assert _C.state(y) == "array"  # what was recorded before runs first
        z = y * 2
        assert _C.state(z) == "array"
        z.add_(1)
        assert _C.state(z) == "array" and z.tolist() == [5, 5, 5]


def test_the_same_training_in_every_mode():
    def train(mode: str) -> list[float]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Dropout(0.2), torch.nn.Linear(8, 1)).to("tpu")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        losses = []
        with torch.tpu.set_eager_mode(mode):
            for _ in range(3):
                loss = model(torch.ones(5, 4, device="tpu")).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
        return losses

    fused = train("fused")
    torch.testing.assert_close(train("strict"), fused, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(train("debug"), fused, rtol=1e-5, atol=1e-6)


def test_debug_mode_finds_the_line_that_makes_nan(monkeypatch):
    monkeypatch.setenv("TORCHTPU_CHECK_NAN", "1")
    x = torch.tensor([1.0, -1.0], device="tpu")
    with torch.tpu.set_eager_mode("debug"):
        assert torch.log(x[:1]).item() == 0
        with pytest.raises(NanError) as caught:
            here(x) + 1
    assert "aten::log: the result holds NaN or infinity" in str(caught.value) and HERE in str(caught.value)


def test_debug_mode_checks_what_is_written_in_place(monkeypatch):
    monkeypatch.setenv("TORCHTPU_CHECK_NAN", "1")
    x = torch.zeros(2, device="tpu")
    with torch.tpu.set_eager_mode("debug"), pytest.raises(NanError, match=r"aten::div_\.Tensor"):
        x.div_(x)


def test_nan_is_allowed_otherwise(monkeypatch):
    with torch.tpu.set_eager_mode("debug"):
        assert torch.log(torch.tensor(-1.0, device="tpu")).isnan().item()
    monkeypatch.setenv("TORCHTPU_CHECK_NAN", "1")
    assert torch.log(torch.tensor(-1.0, device="tpu")).isnan().item()


def test_the_mode_from_the_environment(fresh):
    done = fresh("""
        import torch
        from torchtpu import _C
        x = torch.ones(2, device="tpu") + 1
        print(torch.tpu.get_eager_mode(), _C.state(x))
    """, TORCHTPU_EAGER_MODE="strict")
    assert done.stdout == "strict array\n"


def test_the_first_mode_chosen_in_code_wins_over_the_environment(fresh):
    done = fresh("""
        import torch
        torch.tpu.set_eager_mode("debug")
        torch.ones(2, device="tpu")
        print(torch.tpu.get_eager_mode())
    """, TORCHTPU_EAGER_MODE="strict")
    assert done.stdout == "debug\n"


def test_reading_is_a_sync_of_the_users_line():
    x = torch.ones(2, device="tpu")
    inspect.reset_counters()
    x.sum().item()
    x.cpu()
    syncs = inspect.counters()["syncs"]
    assert sum(syncs.values()) == 2 and all(line.startswith(THIS_FILE) for line in syncs)
