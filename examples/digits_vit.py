"""A small vision transformer on scikit-learn's handwritten digits (1,797 images of 8x8 pixels, ten classes).

    python examples/digits_vit.py --device tpu

Split: stratified, 80 % train and 20 % test, random state 0. Seed 0. Expected: at least 95 % of the test images right.
"""

import argparse
import json
import statistics
import time

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

PATCH = 2
BATCH = 64
STEPS = 500
NOISE = 0.2
READ_EVERY = 20  # steps between two looks at the loss: each look waits for the device


def load_data():
    images, labels = load_digits(return_X_y=True)
    images = torch.tensor(images, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
    labels = torch.tensor(labels)
    train, test = train_test_split(range(len(labels)), test_size=0.2, stratify=labels, random_state=0)
    return images[train], labels[train], images[test], labels[test]


def batches(images, labels, generator):
    """Endless random batches, with a little noise against learning single pixels by heart."""
    while True:
        chosen = torch.randint(len(images), (BATCH,), generator=generator)
        noise = NOISE * torch.randn(BATCH, *images.shape[1:], generator=generator)
        yield images[chosen] + noise, labels[chosen]


class Block(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        batch, tokens, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, tokens, width)
        x = x + self.dropout(self.out(attended))
        return x + self.dropout(self.mlp(self.norm2(x)))


class ViT(nn.Module):
    def __init__(self, width=64, depth=2, heads=4, dropout=0.1):
        super().__init__()
        self.patches = nn.Conv2d(1, width, PATCH, stride=PATCH)
        self.cls = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(0.02 * torch.randn(1, 1 + (8 // PATCH) ** 2, width))
        self.blocks = nn.Sequential(*(Block(width, heads, dropout) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, images):
        patches = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(images), -1, -1), patches], dim=1) + self.positions
        return self.head(self.norm(self.blocks(x)[:, 0]))


def train(device, steps=STEPS, log=print):
    torch.manual_seed(0)
    images, labels, test_images, test_labels = load_data()
    data = batches(images, labels, torch.Generator().manual_seed(0))
    model = ViT().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)

    every = min(READ_EVERY, steps)
    windows, start = [], time.perf_counter()
    for step in range(1, steps + 1):
        batch, wanted = (t.to(device) for t in next(data))
        loss = F.cross_entropy(model(batch), wanted, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % every == 0:
            value = loss.item()
            windows.append((time.perf_counter() - start) / every)
            log(f"step {step:4d}  loss {value:.4f}  {windows[-1] * 1e3:.2f} ms a step")
            start = time.perf_counter()

    model.eval()
    with torch.no_grad():
        right = model(test_images.to(device)).argmax(1) == test_labels.to(device)
        accuracy = right.float().mean().item()
    log(f"test accuracy {accuracy:.2%}")
    return {"loss": value, "accuracy": accuracy, "steps": steps, "step_ms": statistics.median(windows) * 1e3}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="tpu")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--json", help="also write the result to this file")
    arguments = parser.parse_args()
    result = train(arguments.device, arguments.steps)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(result, file, indent=2)
