"""Products of groups against a loop over the groups, with gradients. The CPU's own operator takes bfloat16 alone."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

ENDS = [3, 3, 10]  # the second group is empty


def looped(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    groups = list(zip([0, *ENDS], ENDS, strict=False))
    if a.dim() == b.dim() == 3:
        return a @ b
    if b.dim() == 3:
        return torch.cat([a[i:j] @ b[g] for g, (i, j) in enumerate(groups)])
    if a.dim() == 3:
        return torch.cat([a[g] @ b[:, i:j] for g, (i, j) in enumerate(groups)], 1)
    return torch.stack([a[:, i:j] @ b[i:j] for i, j in groups])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("left", "right"), [
    ((10, 4), (3, 4, 5)), ((6, 10), (10, 5)), ((3, 6, 4), (4, 10)), ((3, 2, 4), (3, 4, 5))])
def test_grouped_mm(left: tuple[int, ...], right: tuple[int, ...], dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(shape, generator=generator).to(dtype) for shape in (left, right)]
    ours = [x.to("tpu").requires_grad_() for x in inputs]
    cpu = [x.clone().requires_grad_() for x in inputs]
    ends = None if len(left) == len(right) == 3 else torch.tensor(ENDS, dtype=torch.int32, device="tpu")
    got, want = torch._grouped_mm(*ours, offs=ends), looped(*cpu)
    for result in (got, want):
        result.sin().sum().backward()
    tolerance = 1e-5 if dtype == torch.float32 else 3e-2
    for mine, theirs in ((got, want), *((x.grad, y.grad) for x, y in zip(ours, cpu, strict=True))):
        assert mine is not None
        torch.testing.assert_close(mine.cpu(), theirs, rtol=tolerance, atol=tolerance)


def test_refused() -> None:
    a, b = torch.ones(4, 3, device="tpu"), torch.ones(2, 3, 5, device="tpu")
    with pytest.raises(RuntimeError, match="offsets"):
        torch._grouped_mm(a, b)


def test_compiled_first_in_a_process() -> None:
    """PyTorch's inference, which knows the dtypes of CUDA, is asked before any backend is; the CPU's stays as it was."""
    code = (
        "import torch\n"
        "f = torch.compile(lambda a, b, ends: torch._grouped_mm(a, b, offs=ends), fullgraph=True)\n"
        "a, b, ends = torch.ones(8, 4), torch.ones(2, 4, 8), torch.tensor([3, 8], dtype=torch.int32)\n"
        "assert f(a.to('tpu'), b.to('tpu'), ends.to('tpu')).cpu().eq(4).all()\n"
        "fake = torch._subclasses.FakeTensorMode()\n"
        "refused = False\n"
        "try:\n"
        "    with fake: torch._grouped_mm(*map(fake.from_tensor, (a, b)), offs=fake.from_tensor(ends))\n"
        "except RuntimeError as error: refused = 'BF16' in str(error)\n"
        "assert refused\n")
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
