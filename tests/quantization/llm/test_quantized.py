"""What later stages see of a quantized linear, held against its definition in NumPy."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.quantization.llm.affine import Affine
from workbench.quantization.llm.quantized import QuantizedLinear, quantized_linear, weight_affine
from workbench.quantization.llm.recipe import LinearRecipe, Type

STEP, OFFSET = 0.0311279296875, 3.0
"""Both are numbers of bfloat16."""


def made(kind: Type, weight: torch.Tensor) -> QuantizedLinear:
    """Of v1, its static range found in bfloat16."""
    recipe = LinearRecipe(type=kind)
    linear = quantized_linear(weight, None, weight_affine(weight, recipe, "v1", None), recipe, "v1", None)
    given = Affine(
        scale=torch.tensor([STEP], dtype=torch.bfloat16), offset=torch.tensor([OFFSET], dtype=torch.bfloat16)
    )
    return linear if kind == "W8A8_DYNAMIC" else replace(linear, input=given)


@pytest.mark.parametrize("kind", ["W8A8_MIX", "W8A8_DYNAMIC"])
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**31), samples=st.integers(1, 3), tokens=st.integers(2, 9))
def test_an_input_by_sample_and_channel_keeps_its_own_dtype(kind: Type, seed: int, samples: int, tokens: int) -> None:
    random = np.random.default_rng(seed)
    x = random.normal(size=(samples, tokens, 24)).astype(np.float32)
    linear = made(kind, torch.from_numpy(random.normal(size=(8, 24)).astype(np.float32)).to(torch.bfloat16))
    steps = np.abs(x).max(1, keepdims=True) / np.float32(127)
    means = np.clip(np.rint(x / steps), -128, 127) * steps  # a scale for each sample and channel, in float32 as x is
    exact = means.astype(np.float64) @ linear.meant.to(torch.float64).numpy().T
    given = linear.wide(torch.from_numpy(x))
    assert given.dtype == torch.float32
    assert np.abs(given.numpy() - exact).max() < 1e-5 * np.abs(exact).max()


def test_a_static_input_is_dequantized_in_the_dtype_of_its_scale() -> None:
    x = torch.linspace(-4, 4, 240).view(1, 10, 24)
    linear = made("W8A8", torch.eye(24, dtype=torch.bfloat16)[:8])
    means = (np.clip(np.rint(x.numpy() / np.float32(STEP) + OFFSET), -128, 127) - OFFSET) * STEP
    rounded = torch.from_numpy(means.astype(np.float32)).to(torch.bfloat16).to(torch.float64)
    assert torch.allclose(linear.wide(x).to(torch.float64), rounded[..., :8] * float(linear.meant[0, 0]), rtol=1e-6)
