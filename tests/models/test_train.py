"""Model families train on the device as on the CPU: the same losses and parameters, and nothing falls back."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import torchtpu.inspect

Tensor = torch.Tensor


class Language(nn.Module):
    """A model of transformers, with the loss of its next token."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        logits = self.model(input_ids=tokens, use_cache=False).logits
        return F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), tokens[:, 1:].flatten())


class Classifier(nn.Module):
    """Any network before a cross-entropy."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(self.layers(x).float(), y)


class Residual(nn.Module):
    """A block of ResNet with a projected short-cut."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        self.convs = nn.Sequential(
            nn.Conv2d(width, out, 3, 2, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU(inplace=True),
            nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out))
        self.short_cut = nn.Sequential(nn.Conv2d(width, out, 1, 2, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.convs(x) + self.short_cut(x), inplace=True)


class Patches(nn.Module):
    """The front of a ViT: patches, a class token, positions."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, width, 4, 4)
        self.token = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.positions = nn.Parameter(torch.randn(1, 17, width) * 0.02)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x).flatten(2).transpose(1, 2)
        return torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.positions


class First(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[:, 0]


class Checkpointed(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.inner, x, use_reentrant=False)


def gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    return Language(GPT2LMHeadModel(GPT2Config(
        vocab_size=61, n_positions=16, n_embd=32, n_layer=2, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        bos_token_id=0, eos_token_id=0)))


def llama() -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    return Language(LlamaForCausalLM(LlamaConfig(
        vocab_size=61, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=16, bos_token_id=0, eos_token_id=0)))


def resnet() -> nn.Module:
    return Classifier(
        nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1), Residual(8, 16),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5))


def vit() -> nn.Module:
    block = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
    return Classifier(Patches(16), block, nn.LayerNorm(16), First(), nn.Linear(16, 5))


def mlp() -> nn.Module:
    return Classifier(nn.Flatten(), nn.Linear(768, 32), nn.GELU(), nn.Dropout(0.0), nn.Linear(32, 32), nn.SiLU(), nn.Linear(32, 5))


def tokens(generator: torch.Generator) -> tuple[Tensor, ...]:
    return (torch.randint(0, 61, (2, 12), generator=generator),)


def images(generator: torch.Generator) -> tuple[Tensor, ...]:
    return torch.randn(4, 3, 16, 16, generator=generator), torch.randint(0, 5, (4,), generator=generator)


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[..., tuple[Tensor, ...]]]] = {
    "gpt2": (gpt2, tokens), "llama": (llama, tokens), "resnet": (resnet, images), "vit": (vit, images), "mlp": (mlp, images),
}
EPS = 1e-4  # Adam divides by it where a gradient is zero but for its last bits, as a key's bias has
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-3, foreach=True),
    "sgd single": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True, foreach=False),
    "sgd fused": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, fused=True),
    "adam": lambda p: torch.optim.Adam(p, lr=1e-3, eps=EPS, weight_decay=1e-2, foreach=True),
    "adam single": lambda p: torch.optim.Adam(p, lr=1e-3, eps=EPS, amsgrad=True, foreach=False),
    "adam fused": lambda p: torch.optim.Adam(p, lr=1e-3, eps=EPS, fused=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-3, eps=EPS, foreach=True),
    "adamw single": lambda p: torch.optim.AdamW(p, lr=1e-3, eps=EPS, foreach=False),
    "adamw fused": lambda p: torch.optim.AdamW(p, lr=1e-3, eps=EPS, fused=True),
}


def train(
    model: nn.Module, data: Callable[..., tuple[Tensor, ...]], optimizer: str, device: str, steps: int = 4, clip: bool = False,
    autocast: bool = False, layout: torch.memory_format = torch.preserve_format,
) -> tuple[list[float], nn.Module]:
    """Losses and the trained model, moved back."""
    generator = torch.Generator().manual_seed(7)
    model = copy.deepcopy(model).to(device, memory_format=layout)
    steps_of = OPTIMIZERS[optimizer](model.parameters())
    losses = []
    for _ in range(steps):
        batch = [x.to(device) for x in data(generator)]
        batch = [x.to(memory_format=layout) if x.ndim == 4 else x for x in batch]
        steps_of.zero_grad()
        with torch.autocast(device, torch.bfloat16, enabled=autocast):
            loss = model(*batch)
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        steps_of.step()
        losses.append(loss.item())
    return losses, model.to("cpu")


def compare(
    name: str, optimizer: str, change: Callable[[nn.Module], nn.Module] = lambda m: m, rtol: float = 1e-5, **options: Any
) -> None:
    make, data = MODELS[name]
    torch.manual_seed(0)
    model = change(make())
    torch.tpu.synchronize()
    torchtpu.inspect.reset_counters()
    found, trained = train(model, data, optimizer, "tpu", **options)
    assert torchtpu.inspect.counters()["fallbacks"] == {}
    expected, reference = train(model, data, optimizer, "cpu", **options)
    torch.testing.assert_close(torch.tensor(found), torch.tensor(expected), rtol=rtol, atol=0)
    autocast = options.get("autocast", False)
    for (key, one), other in zip(reference.named_buffers(), trained.buffers(), strict=True):
        atol = 1e-3 if autocast else 1e-6
        torch.testing.assert_close(other, one, rtol=rtol, atol=atol, msg=lambda text, key=key: f"{key}: {text}")
    if not autocast:
        for (key, one), other in zip(reference.named_parameters(), trained.parameters(), strict=True):
            torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-5, msg=lambda text, key=key: f"{key}: {text}")


@pytest.mark.parametrize("name", list(MODELS))
def test_trains_like_cpu(name):
    compare(name, "adamw", clip=True)


@pytest.mark.parametrize("optimizer", list(OPTIMIZERS))
def test_optimizers(optimizer):
    compare("mlp", optimizer)


@pytest.mark.parametrize(("name", "optimizer"), [("gpt2", "adam fused"), ("resnet", "sgd")])
def test_families_with_other_optimizers(name, optimizer):
    compare(name, optimizer, steps=3)


@pytest.mark.parametrize("name", ["gpt2", "resnet", "mlp"])
def test_autocast(name):
    """bfloat16 keeps three digits, and roundings fall differently."""
    compare(name, "adamw", rtol=2e-2, autocast=True, steps=3)


def test_activation_checkpointing():
    def checkpointed(model: nn.Module) -> nn.Module:
        layers = model.layers
        layers[1] = Checkpointed(layers[1])
        return model

    compare("vit", "adamw", checkpointed, steps=3)


def test_activation_checkpointing_of_transformers():
    def checkpointed(model: nn.Module) -> nn.Module:
        model.model.activation_checkpointing_enable({"use_reentrant": False})
        return model.train()

    compare("llama", "adamw", checkpointed, steps=3)


def test_channels_last():
    compare("resnet", "adamw", layout=torch.channels_last, steps=3)


def test_batch_norm_counts_and_keeps_running_statistics():
    """In float32, as on CPU, and used in evaluation."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    moved = copy.deepcopy(model).to("tpu")
    for _ in range(3):
        x = torch.randn(2, 3, 8, 8)
        model(x), moved(x.to("tpu"))
    assert moved[1].num_batches_tracked.item() == 3
    torch.testing.assert_close(moved[1].running_mean.cpu(), model[1].running_mean, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(moved[1].running_var.cpu(), model[1].running_var, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(moved.eval()(x.to("tpu")).detach().cpu(), model.eval()(x).detach(), rtol=1e-4, atol=1e-5)
