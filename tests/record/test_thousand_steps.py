"""A training run as people write it makes its programs in its first steps, and none in the thousand that follow."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY, WIDTH, TOKENS = 17, 16, 8


class Language(nn.Module):
    """A small transformer with dropout everywhere."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.block = nn.TransformerEncoderLayer(WIDTH, 2, 2 * WIDTH, dropout=0.1, batch_first=True, norm_first=True)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.block(self.tokens(ids)))


@pytest.mark.parametrize(("accumulate", "expected"), [(1, 2), (4, 4)])
def test_programs_of_a_thousand_steps(count, accumulate: int, expected: int) -> None:
    steps = 1000 // accumulate
    torch.manual_seed(0)
    model = Language().to("tpu")
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.SequentialLR(optimizer, [
        torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=10),
        torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps - 10)], [10])
    generator = torch.Generator().manual_seed(1)
    losses = []
    for step in range(steps):
        for _ in range(accumulate):
            ids = torch.randint(VOCABULARY, (4, TOKENS), generator=generator).to("tpu")
            with torch.autocast("tpu", dtype=torch.bfloat16):
                loss = F.cross_entropy(model(ids).flatten(0, 1), ids.flatten()) / accumulate
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % 50 == 0:
            losses.append(loss.item() * accumulate)
    assert losses[-1] < losses[0] / 2
    assert count.programs <= expected
    assert count.fills <= 1
    assert count.launches <= 1000 + 10
