"""How many programs a loop makes. The number is stated, and does not depend on the number of steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import torchtpu.inspect

STEPS = 12


def mlp(width: int = 8, dropout: float = 0.0) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Dropout(dropout), nn.Linear(width, 3)).to("tpu")


def batches(steps: int = STEPS) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        x = torch.randn(16, 4, generator=generator)
        yield x.to("tpu"), (x.sum(1) > 0).long().to("tpu")


@pytest.mark.parametrize("reads", [True, False])
@pytest.mark.parametrize("zero", ["before", "after", "to_zero"])
def test_a_plain_loop_is_one_program(count, reads, zero):
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for x, y in batches():
        if zero != "after":
            optimizer.zero_grad(set_to_none=zero == "before")
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        if zero == "after":
            optimizer.zero_grad()
        losses.append(loss.item() if reads else loss.detach())
    assert float(losses[-1]) < float(losses[0])
    # Zeroing in place: the first step has no gradients yet, and in the second a bias's still has the shape that `sum` gave it.
    # The last step's gradients are held when the loss is read after the loop, while those of the steps before it were dropped.
    assert count.programs == 1 + 2 * (zero == "to_zero") + (zero == "before" and not reads)
    assert count.fills <= 1
    assert count.launches <= (STEPS + 2)


def test_a_step_that_raised_is_over(count):
    """Nothing of it is left to make later steps of another optimizer look as if they ran inside it."""

    def unlucky() -> torch.Tensor:
        raise ArithmeticError

    failed = torch.optim.SGD(mlp().parameters(), lr=1e-2)
    with pytest.raises(ArithmeticError):
        failed.step(unlucky)
    test_a_plain_loop_is_one_program(count, True, "before")


def test_dropped_gradients_are_no_outputs(count):
    """Gradients that zero_grad drops before the program runs cost no memory; kept ones do."""

    def output_bytes(drop: bool) -> int:
        count.restart()
        model = mlp(64)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
        for x, y in batches(3):
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            if drop:
                optimizer.zero_grad()
            else:
                torch.tpu.synchronize()
                optimizer.zero_grad()
        torch.tpu.synchronize()
        return max(r.memory["output_bytes"] for r in count.records)

    num_bytes = sum(p.numel() * 4 for p in mlp(64).parameters())
    dropped, kept = output_bytes(True), output_bytes(False)
    assert kept - dropped >= num_bytes * 0.9


class Orthogonalized(torch.optim.Optimizer):
    """An optimizer in the manner of Muon: momentum, then a few Newton-Schulz iterations."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 1e-2})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for p in self.param_groups[0]["params"]:
            momentum = self.state[p].setdefault("momentum", torch.zeros_like(p))
            momentum.mul_(0.9).add_(p.grad)
            x = momentum / (momentum.norm() + 1e-7)
            for _ in range(3):
                x = 1.5 * x - 0.5 * x @ x.T @ x
            p.add_(x, alpha=-self.param_groups[0]["lr"])


@pytest.mark.parametrize("reads", [True, False])
def test_two_optimizers_in_sequence_are_one_program(count, reads):
    model = mlp()
    matrices = [p for p in model.parameters() if p.ndim == 2]
    vectors = [p for p in model.parameters() if p.ndim != 2]
    optimizers = [Orthogonalized(matrices), torch.optim.AdamW(vectors, lr=1e-2)]
    for x, y in batches():
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        for optimizer in optimizers:
            optimizer.zero_grad()
        if reads:
            loss.item()
    torch.tpu.synchronize()
    assert count.programs == 1
    assert count.launches == STEPS + len([r for r in count.records if r.fills])


def test_two_optimizers_that_zero_in_turn(count):
    """zero_grad of the first comes before the second's step."""
    first, second = mlp(), mlp()
    optimizers = [torch.optim.SGD(m.parameters(), lr=1e-2, momentum=0.9) for m in (first, second)]
    for x, y in batches():
        loss = F.cross_entropy(first(x) + second(x), y)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        loss.item()
    assert count.programs == 4  # two parts, cut where the first zeroes; and the first step has no momentum yet


@pytest.mark.parametrize("reads", [True, False])
def test_gan_loop(count, reads):
    torch.manual_seed(0)
    generator = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).to("tpu")
    critic = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1)).to("tpu")
    of_generator = torch.optim.Adam(generator.parameters(), lr=1e-3)
    of_critic = torch.optim.Adam(critic.parameters(), lr=1e-3)
    one, zero = torch.ones(16, 1, device="tpu"), torch.zeros(16, 1, device="tpu")
    for x, _ in batches():
        real = x[:, :2]
        fake = generator(torch.randn(16, 4, device="tpu"))
        of_critic.zero_grad()
        loss_of_critic = F.binary_cross_entropy_with_logits(critic(real), one)
        loss_of_critic = loss_of_critic + F.binary_cross_entropy_with_logits(critic(fake.detach()), zero)
        loss_of_critic.backward()
        of_critic.step()
        of_generator.zero_grad()
        loss_of_generator = F.binary_cross_entropy_with_logits(critic(fake), one)
        loss_of_generator.backward()
        of_generator.step()
        if reads:
            loss_of_critic.item()
            loss_of_generator.item()
    torch.tpu.synchronize()
    # Two parts a step, cut where the gradients of the other network are dropped; the first step has none.
    assert count.programs == 3
    assert count.launches <= 2 * STEPS + 2


def test_optimizer_in_backward(count):
    model = mlp()
    optimizers = {p: torch.optim.AdamW([p], lr=1e-2, foreach=False) for p in model.parameters()}

    def step(p: torch.Tensor) -> None:
        optimizers[p].step()
        optimizers[p].zero_grad()

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(step)
    first = last = None
    for x, y in batches():
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        last = loss.item()
        first = last if first is None else first
    assert last < first
    assert count.programs == 1
    assert count.launches == STEPS + len([r for r in count.records if r.fills])


def test_lbfgs_closure(count):
    model = mlp()
    x, y = next(batches())
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4, history_size=2)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss

    losses = [optimizer.step(closure).item() for _ in range(4)]
    early = count.programs
    losses += [optimizer.step(closure).item() for _ in range(4)]
    assert losses[-1] < losses[0]
    assert early <= 20  # it reads several numbers in each iteration: the first ones differ, until its history is full
    assert count.programs - early <= 2


def test_gradient_accumulation(count):
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    for index, (x, y) in enumerate(batches(40)):
        loss = F.cross_entropy(model(x), y) / 4
        loss.backward()
        if index % 4 == 3:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
            loss.item()
    assert count.programs <= 4


def test_gradient_accumulation_reading_every_loss(count):
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for index, (x, y) in enumerate(batches(40)):
        loss = F.cross_entropy(model(x), y) / 4
        loss.backward()
        if index % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()
        loss.item()
    assert count.programs <= 4


def test_retain_graph(count):
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for x, y in batches():
        optimizer.zero_grad()
        out = model(x)
        first, second = F.cross_entropy(out, y), out.square().mean()
        first.backward(retain_graph=True)
        second.backward()
        optimizer.step()
        first.item()
    assert count.programs == 1


@pytest.mark.parametrize("reads", [True, False])
def test_inference_loop(count, reads):
    """Without reads, a repeated model is found by its parameters, so the loop neither grows nor recompiles."""
    torch.ones(1, device="tpu").item()  # a program before there was a model
    count.restart()
    model = nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(8, 8), nn.LayerNorm(8), nn.ReLU()))).to("tpu")
    x = torch.randn(4, 8)
    results = []
    with torch.no_grad():
        for _ in range(30):
            out = model(x.to("tpu"))
            results.append(out.sum().item() if reads else out)
    torch.tpu.synchronize()
    assert count.programs <= (1 if reads else 3)  # unread: the first repetitions, then two at a time, then what is left
    assert count.launches >= (30 if reads else 12)
    assert all(torch.equal(torch.as_tensor(results[0]), torch.as_tensor(r)) for r in results)


def test_layers_that_look_alike_are_no_loop(count):
    """A model is not cut between its layers, although these repeat: each reads parameters of its own."""
    def block() -> nn.Module:
        return nn.Sequential(*(layer for f in (nn.ReLU, nn.Tanh, nn.GELU) for layer in (nn.Linear(8, 8), nn.LayerNorm(8), f())))

    model = nn.Sequential(*(block() for _ in range(4))).to("tpu")
    for _ in range(3):
        with torch.no_grad():
            model(torch.randn(4, 8).to("tpu")).sum().item()
    assert count.programs == 1
    assert count.launches == 3


def test_evaluation_between_epochs(count):
    model = mlp()
    data = DataLoader(TensorDataset(torch.randn(64, 4), torch.randint(0, 3, (64,))), batch_size=16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(4):
        model.train()
        for x, y in data:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x.to("tpu")), y.to("tpu"))
            loss.backward()
            optimizer.step()
        model.eval()
        correct = 0
        with torch.no_grad():
            for x, y in data:
                correct += (model(x.to("tpu")).argmax(1) == y.to("tpu")).sum().item()
        assert 0 <= correct <= 64
    assert count.programs == 2  # one of training, one of evaluation


class Rounds:
    """Schedules that end a step in different ways."""

    @staticmethod
    def warm_up(optimizer: torch.optim.Optimizer) -> Any:
        return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(step / 10, 1.0))

    @staticmethod
    def cosine(optimizer: torch.optim.Optimizer) -> Any:
        return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 200)


@pytest.mark.parametrize("reads", [True, False])
@pytest.mark.parametrize("kind", [{"foreach": True}, {"foreach": False}, {"fused": True}], ids=["foreach", "single", "fused"])
def test_everything_at_once(count, kind, reads):
    """Cosine schedule, clipping, dropout, autocast, AdamW."""
    model = mlp(dropout=0.1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1, **kind)
    schedule = Rounds.cosine(optimizer)
    losses = []
    for x, y in batches(200):
        optimizer.zero_grad()
        with torch.autocast("tpu"):
            loss = F.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item() if reads else loss.detach())
    assert float(losses[-1]) < float(losses[0])
    assert count.programs == 1 + (not reads)  # the last step's gradients are not dropped before its loss is read
    assert torchtpu.inspect.counters()["compiles"] + torchtpu.inspect.counters()["disk_hits"] == count.programs + count.fills


def test_warm_up_from_zero(count):
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-1, momentum=0.9)
    schedule = Rounds.warm_up(optimizer)
    before = [p.detach().cpu().clone() for p in model.parameters()]
    for index, (x, y) in enumerate(batches(20)):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        schedule.step()
        if index == 0:
            assert all(torch.equal(b, p.detach().cpu()) for b, p in zip(before, model.parameters(), strict=True))
    loss.item()
    assert count.programs <= 3  # the first momentum is a copy of the gradient


def test_grad_scaler(count):
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("tpu", init_scale=2.0**4, growth_interval=5)
    for x, y in batches(20):
        optimizer.zero_grad()
        with torch.autocast("tpu", dtype=torch.float16):
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    assert scaler.get_scale() > 2.0**4
    # It reads whether a gradient was infinite, which cuts the step in two.
    assert count.programs <= 4
