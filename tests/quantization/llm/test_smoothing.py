"""Smoothing moves outliers and leaves what a float model computes, whatever the method and the family."""

from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.quantization.llm.tiny_models import samples, write_model
from workbench.quantization.llm.checkpoint import open_model, read_block
from workbench.quantization.llm.forward import rope_of
from workbench.quantization.llm.forwards import float_logits
from workbench.quantization.llm.recipe import Group, LinearRecipe, LlmRecipe, Phase, Smooth
from workbench.quantization.llm.run import fake_logits
from workbench.quantization.llm.smoothing.groups import ChannelStatistics, outlier_scale
from workbench.quantization.llm.smoothing.search import searched_exponents
from workbench.quantization.llm.walk import WorkingBlock, take_stage

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
    return list(float_logits(model)(samples())), made


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


def test_an_outlying_channel_is_smaller_behind_every_method(tmp_path: Path) -> None:
    model = open_model(write_model(tmp_path / "m", "qwen2", "float32"))
    rope, hidden = rope_of(model.config), [torch.randn(1, 20, 32, generator=torch.Generator().manual_seed(0))]
    before = read_block(model, 0)["input_layernorm.weight"]
    loudest = int(before.abs().argmax())
    for name, stage in STAGES.items():
        if name == "m5":
            continue  # of channels that stand out together it lowers those alone that stand out among them
        block = WorkingBlock(
            config=model.config, rope=rope, index=0, prefix="model.layers.0", tensors=read_block(model, 0)
        )
        with torch.inference_mode():
            take_stage(block, stage, list(hidden))
        after = block.tensors["input_layernorm.weight"].abs()
        assert after[loudest] / after.median() < before.abs()[loudest] / before.abs().median(), name


@settings(max_examples=6, deadline=None)
@given(st.integers(0, 10**6), st.booleans())
def test_searched_exponents_have_no_greater_error_than_those_of_m1(seed: int, per_token: bool) -> None:
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(2, 9, 24, generator=random) * torch.rand(24, generator=random).pow(3) * 9
    weight = torch.randn(16, 24, generator=random)

    def error(alpha: float, beta: float) -> float:
        by = x.abs().amax((0, 1)).pow(alpha) * weight.abs().amax(0).pow(-beta)
        given, scaled = (x / by).reshape(-1, 24), weight * by
        if per_token:
            step = given.abs().amax(1, keepdim=True) / 127
            fake = torch.round(given / step) * step
        else:
            step = (given.max() - given.min()) / 255
            offset = torch.round(-given.min() / step) - 128
            fake = (torch.round(given / step + offset) - offset) * step
        steps = scaled.abs().amax(1, keepdim=True) / 127
        return float((fake @ (torch.round(scaled / steps) * steps).T - x.reshape(-1, 24) @ weight.T).pow(2).mean())

    assert error(*searched_exponents([weight], [x[:1], x[1:]], per_token=per_token)) <= error(0.5, 0.5) * (1 + 1e-4)


def kept_by_definition(beyond: np.ndarray) -> float:
    """Of m5's suspected channels the largest that stays as it is: its gap to the next, less the variance of those up to
    it, is the largest."""
    ascending = np.sort(beyond)
    spreads = [ascending[:count].var(ddof=1) if count > 1 else 0.0 for count in range(1, len(beyond))]
    found = np.diff(ascending) - spreads
    ranked = np.sort(found)
    assume(len(ranked) < 2 or ranked[-1] - ranked[-2] > 1e-3)  # float32 may part equal ones otherwise
    return float(ascending[np.argmax(found)])


@settings(max_examples=60, deadline=None)
@given(beyond=st.lists(st.floats(4, 12, width=16), min_size=2, max_size=9, unique=True))
def test_m5_parts_channels_that_stand_out_by_gap_less_variance(beyond: list[float]) -> None:
    values = np.concatenate((np.linspace(0.5, 1.5, 60), beyond)).astype(np.float32)  # its fence is below 4
    seen = ChannelStatistics(keep=0)
    seen.update(torch.from_numpy(values)[None, None])
    limit = kept_by_definition(np.array(beyond))
    expected = np.where(values > limit, (values / limit) ** 0.7, 1)
    assert np.allclose(outlier_scale(seen).numpy(), expected, rtol=1e-5)
