"""A small GPT on real English: the 465 kB of help texts that Python ships in ``pydoc_data.topics``.

    python examples/gpt_text.py --device tpu --steps 200

Tokens are the commonest words of the text; other words are spelt out. The last tenth of the text is held out. Seed 0.
It ends by printing the held-out loss and a sample of what it writes.
"""

import argparse
import json
import re
import statistics
import time
from collections import Counter
from itertools import chain
from pydoc_data.topics import topics

import torch
import torch.nn.functional as F
from torch import nn

LAYERS, WIDTH, HEADS, CONTEXT = 4, 128, 4, 64
VOCABULARY = 2048
BATCH = 12
STEPS = 200
READ_EVERY = 20  # steps between two looks at the loss: each look waits for the device
LEARNING_RATE = 1e-3
CLIP = 1.0


def load_text():
    text = " ".join("\n".join(topics.values()).split())
    pieces = re.findall(r" ?\w+|\s+|.", text)
    letters = sorted(set(text))
    common = [piece for piece, _ in Counter(p for p in pieces if len(p) > 1).most_common(VOCABULARY - len(letters))]
    vocabulary = letters + common
    index = {token: i for i, token in enumerate(vocabulary)}
    tokens = chain.from_iterable([index[p]] if p in index else [index[letter] for letter in p] for p in pieces)
    ids = torch.tensor(list(tokens))
    cut = len(ids) * 9 // 10
    return ids[:cut], ids[cut:], vocabulary


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        batch, tokens, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).split(WIDTH, dim=-1)
        q, k, v = (t.view(batch, tokens, HEADS, -1).transpose(1, 2) for t in (q, k, v))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, tokens, WIDTH))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, vocabulary):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks, self.norm = nn.Sequential(*(Block() for _ in range(LAYERS))), nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, ids):
        positions = torch.arange(ids.shape[1], device=ids.device)
        return self.head(self.norm(self.blocks(self.tokens(ids) + self.positions(positions))))


def loss_of(model, ids, targets):
    return F.cross_entropy(model(ids).flatten(0, 1), targets.flatten())


def batches(ids, generator):
    """Endless random windows of the text, and the same windows one token later."""
    while True:
        starts = torch.randint(len(ids) - CONTEXT, (BATCH, 1), generator=generator)
        window = ids[starts + torch.arange(CONTEXT + 1)]
        yield window[:, :-1].contiguous(), window[:, 1:].contiguous()


@torch.no_grad()
def held_out_loss(model, ids, device, count=8):
    data = batches(ids, torch.Generator().manual_seed(1))
    losses = [loss_of(model, *(t.to(device) for t in next(data))) for _ in range(count)]
    return torch.stack(losses).mean().item()


@torch.no_grad()
def generate(model, prompt, count):
    """``count`` more tokens after ``prompt``, sampled; the window keeps its length."""
    window, written = prompt, []
    for _ in range(count):
        chances = F.softmax(model(window)[:, -1] / 0.8, dim=-1)
        written.append(torch.multinomial(chances, 1))
        window = torch.cat([window[:, 1:], written[-1]], dim=1)
    return torch.cat(written, dim=1)[0].tolist()


def train(device, steps=STEPS, tokens=160, log=print):
    torch.manual_seed(0)
    text, held_out, vocabulary = load_text()
    model = GPT(len(vocabulary)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    data = batches(text, torch.Generator().manual_seed(0))

    every = min(READ_EVERY, steps)
    windows, start = [], time.perf_counter()
    for step in range(1, steps + 1):
        ids, targets = (t.to(device) for t in next(data))
        loss = loss_of(model, ids, targets)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        schedule.step()
        if step % every == 0:
            value = loss.item()
            windows.append((time.perf_counter() - start) / every)
            log(f"step {step:4d}  loss {value:.4f}  {windows[-1] * 1e3:.2f} ms a step")
            start = time.perf_counter()

    model.eval()
    loss = held_out_loss(model, held_out, device)
    prompt = held_out[:CONTEXT]
    written = generate(model, prompt[None].to(device), tokens)
    sample = "".join(vocabulary[i] for i in [*prompt.tolist(), *written])
    log(f"held-out loss {loss:.4f}\n{sample}")
    return {"loss": loss, "train_loss": value, "steps": steps, "step_ms": statistics.median(windows) * 1e3,
            "sample": sample}


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
