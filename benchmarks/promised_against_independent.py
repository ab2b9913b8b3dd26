"""What bundles promise, beside what a computation that shares nothing with the workbench finds. Run by hand.

    python -m benchmarks.promised_against_independent BUNDLE [BUNDLE ...]

Every bundle is of one of the examples in `experiments/models.md`. Its compiled model and the float model it was made
from run over inputs that no sweep has read (split `unseen` of the example's samples), one by one, and
`benchmarks.independent` measures both in its own words. Columns:

    promised         loss of the measure against float on the bundle's holdout (else validation), with its 95 % interval
    independent      the same on unseen inputs, with an interval by bootstrap
    holds            the unseen loss lies inside the promised interval. Both are estimates: of exact intervals some 9 in
                     10 hold, since the unseen inputs are two to four times as many as the holdout
    float, INT8      the measure itself, on unseen inputs
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.independent.engines import opened
from benchmarks.independent.examples import EXAMPLES, ROOT, Example, answers, samples_of

RESAMPLES = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:+.3g} [{self.low:+.3g}, {self.high:+.3g}]"


def promised(manifest: dict[str, Any]) -> Loss:
    """The bundle's last word: its evaluation on the holdout, else on the validation."""
    held = sorted(manifest["evaluations"], key=lambda found: found["split"] == "holdout")
    drop = held[-1]["measurement"]["accuracy"]["comparison"]["drop_pp"]
    return Loss(value=drop["value"], low=drop["low"], high=drop["high"])


def independent(example: Example, float_file: Path, int8_file: Path) -> tuple[float, float, Loss]:
    """The measure of the float model and of the other, and the loss."""
    float_run, float_shapes = opened(float_file)
    int8_run, int8_shapes = opened(int8_file)
    rows = []
    for feeds, target in samples_of(example):
        given = example.judge(
            answers(example, float_run, float_shapes, feeds), answers(example, int8_run, int8_shapes, feeds), target
        )
        rows.append([*given[0], *given[1]])
    table = np.array(rows)
    sign = (1 if example.higher else -1) * (100 if example.unit == "pp" else 1)
    random = np.random.default_rng(0)
    again = [_loss(table[random.integers(len(table), size=len(table))]) * sign for _ in range(RESAMPLES)]
    low, high = np.quantile(again, [0.025, 0.975])
    sums = table.sum(axis=0)
    loss = Loss(value=float(_loss(table) * sign), low=float(low), high=float(high))
    return float(sums[0] / sums[1]), float(sums[2] / sums[3]), loss


def _loss(table: npt.NDArray[np.float64]) -> float:
    sums = table.sum(axis=0)
    return float(sums[0] / sums[1] - sums[2] / sums[3])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundles", nargs="+", type=Path)
    form = "{:18}{:14}{:13}{:28}{:>9}{:>9}  {:28}{:28}{}"
    print(form.format("model", "candidate", "engine", "measure", "float", "INT8", "promised", "independent", "holds"))
    held = []
    for bundle in parser.parse_args().bundles:
        manifest = json.loads((bundle / "manifest.json").read_text("utf-8"))
        example = EXAMPLES[manifest["name"]]
        files = [file for file in sorted((bundle / "model").iterdir()) if file.suffix in (".onnx", ".xml")]
        word = promised(manifest)
        float_value, int8_value, found = independent(
            example, ROOT / ".workbench/real-models" / manifest["name"] / "model.onnx", files[0]
        )
        held.append(word.low <= found.value <= word.high)
        print(
            form.format(
                manifest["name"], manifest["candidate_id"][:12], manifest["artifact"]["target"],
                f"{example.measure}, {example.unit}",
                f"{float_value:.4f}", f"{int8_value:.4f}", str(word), str(found), "yes" if held[-1] else "no",
            ),
            flush=True,
        )  # fmt: skip
    print(f"{sum(held)} of {len(held)} promised intervals hold")


if __name__ == "__main__":
    main()
