"""Samples for two small CNNs, and the CNNs: handwritten digits of scikit-learn, moved, turned and noised. With labels.

    pip install torch scikit-learn scipy
    python calibration/digits_cnn_samples.py                    # trains both below .workbench/real-models/, a minute

`digits-resnet` has residual blocks of plain convolutions, `digits-mobilenet` inverted residuals with depthwise
convolutions, ReLU6 and squeeze-and-excitation, as the networks of torchvision have them; all follows from a seed.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
from scipy.ndimage import rotate, shift, zoom
from sklearn.datasets import load_digits

SIZES = {"train": 2000, "calibration": 128, "validation": 1000, "holdout": 1000, "unseen": 4000}
SEEDS = {"train": 0, "calibration": 1, "validation": 2, "holdout": 3, "unseen": 4}
TRAINED = 900  # of 1797 digits; the splits are made from the others
MODELS = Path(__file__).resolve().parents[1] / ".workbench/real-models"


def samples(split: str) -> Iterator[tuple[dict[str, np.ndarray], int]]:
    random = np.random.default_rng(SEEDS[split])
    digits = load_digits()
    rows = np.arange(TRAINED) if split == "train" else np.arange(TRAINED, len(digits.images))
    for row in random.choice(rows, SIZES[split]):
        picture = np.pad(zoom(digits.images[row] / 16, 3, order=1), 4)
        picture = rotate(picture, random.uniform(-20, 20), reshape=False, order=1)
        picture = shift(picture, random.uniform(-3, 3, 2), order=1)
        tint, noise = random.uniform(0.4, 1, (3, 1, 1)), random.normal(0, random.uniform(0, 0.25), (3, 32, 32))
        yield {"image": ((picture * tint + noise - 0.2) / 0.35).astype(np.float32)}, int(digits.target[row])


def main() -> None:
    import torch
    from torch import nn

    torch.manual_seed(0)
    torch.set_num_threads(1)  # small layers: threads wait for each other longer than they work

    def convolved(inputs: int, outputs: int, size: int = 3, stride: int = 1, groups: int = 1) -> list[nn.Module]:
        convolution = nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)
        return [convolution, nn.BatchNorm2d(outputs)]

    class Residual(nn.Module):
        def __init__(self, inputs: int, outputs: int, stride: int) -> None:
            super().__init__()
            self.body = nn.Sequential(*convolved(inputs, outputs, 3, stride), nn.ReLU(), *convolved(outputs, outputs))
            same = inputs == outputs and stride == 1
            self.short = nn.Identity() if same else nn.Sequential(*convolved(inputs, outputs, 1, stride))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.body(x) + self.short(x))

    class Squeeze(nn.Module):
        def __init__(self, channels: int) -> None:
            super().__init__()
            self.gate = nn.Sequential(
                nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, channels // 4, 1), nn.ReLU(),
                nn.Conv2d(channels // 4, channels, 1), nn.Hardsigmoid(),
            )  # fmt: skip

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.gate(x)

    class Inverted(nn.Module):
        def __init__(self, inputs: int, outputs: int, stride: int) -> None:
            super().__init__()
            wide = inputs * 4
            self.same = inputs == outputs and stride == 1
            self.body = nn.Sequential(
                *convolved(inputs, wide, 1), nn.ReLU6(), *convolved(wide, wide, 3, stride, wide), nn.ReLU6(),
                Squeeze(wide), *convolved(wide, outputs, 1),
            )  # fmt: skip

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.body(x) if self.same else self.body(x)

    def network(block: type[nn.Module], channels: list[int]) -> nn.Module:
        blocks = [block(a, b, 1 + (a != b)) for a, b in pairwise(channels)]
        head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels[-1], 10)]
        return nn.Sequential(*convolved(3, channels[0], stride=2), nn.ReLU(), *blocks, *head)

    rows = list(samples("train"))
    pictures = torch.tensor(np.stack([feeds["image"] for feeds, _ in rows]))
    labels = torch.tensor([label for _, label in rows])
    networks = {
        "digits-resnet": network(Residual, [16, 16, 32, 64]),
        "digits-mobilenet": network(Inverted, [24, 24, 32, 48]),
    }
    for name, net in networks.items():
        optimizer = torch.optim.AdamW(net.parameters(), 4e-3, weight_decay=1e-2)
        for _ in range(8):
            for chosen in torch.randperm(len(rows)).split(64):
                optimizer.zero_grad()
                nn.functional.cross_entropy(net(pictures[chosen]), labels[chosen]).backward()
                optimizer.step()
        model = MODELS / name / "model.onnx"
        model.parent.mkdir(parents=True, exist_ok=True)
        torch.onnx.export(
            net.eval(), (pictures[:2],), str(model), input_names=["image"], output_names=["logits"],
            dynamic_axes={"image": {0: "batch"}, "logits": {0: "batch"}}, dynamo=False,
        )  # fmt: skip
        print(f"{model}; now: workbench sweep experiments/{name}.yaml")


if __name__ == "__main__":
    main()
