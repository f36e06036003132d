"""Running statistics are written by an operator whose schema does not say so."""

from __future__ import annotations

import pytest
import torch


@pytest.mark.parametrize("given", [("mean", "var"), ("mean",), ("var",), ()], ids=str)
def test_batch_norm_update_stats(given: tuple[str, ...]) -> None:
    x = torch.arange(24.0).reshape(4, 3, 2)
    results = []
    for device in ("cpu", "tpu"):
        old = {"mean": torch.zeros(3, device=device), "var": torch.ones(3, device=device)}
        running = [old[name] if name in given else None for name in ("mean", "var")]
        found = torch.batch_norm_update_stats(x.to(device), *running, 0.1)
        results.append([v.cpu() for v in (*found, *old.values())])
    torch.testing.assert_close(*results)


def test_native_batch_norm_with_out() -> None:
    x = torch.arange(24.0).reshape(4, 3, 2)
    results = []
    for device in ("cpu", "tpu"):
        mean, var = torch.zeros(3, device=device), torch.ones(3, device=device)
        out = [torch.empty(0, device=device) for _ in range(3)]
        torch.native_batch_norm(x.to(device), None, None, mean, var, True, 0.1, 1e-5, out=out)
        results.append([v.cpu() for v in (*out, mean, var)])
    torch.testing.assert_close(*results)
