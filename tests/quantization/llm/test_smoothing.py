"""Smoothing moves outliers and leaves what a float model computes, whatever the method and the family."""

from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.quantization.llm.emulated import fake_logits
from tests.quantization.llm.tiny_models import samples, write_model
from workbench.quantization.llm.checkpoint import open_model
from workbench.quantization.llm.forward import float_decoder, logits_of
from workbench.quantization.llm.recipe import Group, LinearRecipe, LlmRecipe, Phase, Smooth

ALL: tuple[Group, ...] = ("norm-linear", "ov", "up-down")
NORMS = ALL[:1]
JUDGED = LinearRecipe(type="W8A8", observer="extremes")
STAGES = {
    "m1": Smooth(method="power", generation="v0", groups=NORMS, norm_bias=True),
    "m2": Smooth(method="outlier_suppression", generation="v0", groups=NORMS, norm_bias=True),
    "m3": Smooth(method="awq", generation="v0", groups=NORMS, norm_bias=True),
    "m4": Smooth(method="power", generation="v0", groups=ALL, alpha=0.9, beta=0.1, norm_bias=True),
    "m4-shifted": Smooth(method="power", generation="v0", groups=ALL, shift=True, norm_bias=True),
    "m5": Smooth(method="cbq", generation="v0", groups=NORMS, norm_bias=True),
    "m6": Smooth(method="search", generation="v0", groups=ALL, head_reduction="max"),
    "flex": Smooth(method="search", generation="v1", groups=ALL, head_reduction="max", per_token=True),
    "iter-shifted": Smooth(
        method="power", generation="v1", groups=ALL, alpha=0.9, beta=0.1, shift=True, norm_bias=True
    ),
    "awq": Smooth(method="awq", generation="v1", groups=("norm-linear", "up-down"), steps=5),
    "flex-awq": Smooth(method="flex_awq", generation="v1", groups=ALL, head_reduction="max", judged=JUDGED),
}


def smoothed(folder: Path, stage: Smooth) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Logits of the float model, and of the same smoothed and not quantized."""
    model = open_model(folder)
    recipe = LlmRecipe(generation=stage.generation, type="FLOAT", phases=(Phase(stages=(stage,)),))
    made = fake_logits(model, recipe, {"calibration": samples(3, seed=5)}, samples())
    return list(logits_of(float_decoder(model), "prefill")(samples())), made


@pytest.mark.parametrize(("name", "family"), list(zip(STAGES, cycle(("llama", "qwen2", "qwen3")), strict=False)))
def test_a_smoothed_float_model_computes_the_same(tmp_path: Path, family: str, name: str) -> None:
    more: dict[str, Any] = {"attention_bias": True, "mlp_bias": True} if family == "llama" else {}
    floats, made = smoothed(write_model(tmp_path / "m", family, "float32", **more), STAGES[name])
    for ours, exact in zip(made, floats, strict=True):
        assert float((ours - exact).abs().max() / exact.abs().max()) < 2e-4


def test_awq_over_shared_heads_is_wrong_as_in_the_tool_and_over_heads_of_their_own_right(tmp_path: Path) -> None:
    stage = replace(STAGES["awq"], groups=ALL)
    floats, made = smoothed(write_model(tmp_path / "shared", "qwen3", "float32"), stage)
    assert float((made[0] - floats[0]).abs().max()) > 0.01
    floats, made = smoothed(write_model(tmp_path / "own", "qwen3", "float32", num_key_value_heads=4), stage)
    assert float((made[0] - floats[0]).abs().max() / floats[0].abs().max()) < 2e-4
