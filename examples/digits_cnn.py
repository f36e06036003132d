"""A small convolutional net on scikit-learn's handwritten digits (1,797 images of 8x8 pixels, ten classes).

    python examples/digits_cnn.py --device tpu

Split: stratified, 80 % train and 20 % test, random state 0. Seed 0. Expected: at least 97 % of the test images right.
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
from torch.utils.data import DataLoader, TensorDataset

BATCH = 64
EPOCHS = 10
READ_EVERY = 11  # steps between two looks at the loss: each look waits for the device


def load_data():
    images, labels = load_digits(return_X_y=True)
    images = torch.tensor(images, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
    labels = torch.tensor(labels)
    train, test = train_test_split(range(len(labels)), test_size=0.2, stratify=labels, random_state=0)
    return TensorDataset(images[train], labels[train]), TensorDataset(images[test], labels[test])


def make_model():
    def block(inputs, outputs):
        return [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]

    return nn.Sequential(
        *block(1, 32), *block(32, 64), nn.MaxPool2d(2), *block(64, 64), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(256, 10),
    )


def evaluate(model, dataset, device):
    model.eval()
    with torch.no_grad():
        images, labels = (t.to(device) for t in dataset.tensors)
        right = (model(images).argmax(1) == labels).float().mean()
    model.train()
    return right.item()


def train(device, epochs=EPOCHS, log=print):
    torch.manual_seed(0)
    train_set, test_set = load_data()
    order = torch.Generator().manual_seed(0)
    loader = DataLoader(train_set, BATCH, shuffle=True, drop_last=True, generator=order)
    model = make_model().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4, nesterov=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * len(loader))

    step, windows, start = 0, [], time.perf_counter()
    for _ in range(epochs):
        for images, labels in loader:
            loss = F.cross_entropy(model(images.to(device)), labels.to(device), label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            schedule.step()
            step += 1
            if step % READ_EVERY == 0:
                value = loss.item()
                windows.append((time.perf_counter() - start) / READ_EVERY)
                log(f"step {step:4d}  loss {value:.4f}  {windows[-1] * 1e3:.2f} ms a step")
                start = time.perf_counter()
    accuracy = evaluate(model, test_set, device)
    log(f"test accuracy {accuracy:.2%}")
    return {"loss": value, "accuracy": accuracy, "steps": step, "step_ms": statistics.median(windows) * 1e3}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="tpu")
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--json", help="also write the result to this file")
    arguments = parser.parse_args()
    result = train(arguments.device, arguments.epochs)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(result, file, indent=2)
