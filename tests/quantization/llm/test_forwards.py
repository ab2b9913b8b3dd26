"""Logits one window at a time are those of the whole forward pass."""

from pathlib import Path

import pytest
import torch

from tests.quantization.llm.tiny_models import samples, write_model
from workbench.quantization.llm.checkpoint import open_model
from workbench.quantization.llm.forwards import float_logits
from workbench.values.errors import ConfigError


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("tied", [False, True])
def test_float_logits_are_the_same_each_time_whether_blocks_stay_in_memory_or_not(
    tmp_path: Path, keep: bool, tied: bool
) -> None:
    model = open_model(write_model(tmp_path / "m", "llama", tie_word_embeddings=tied))
    forward = float_logits(model, keep=keep)
    expected = list(float_logits(model)(samples()))
    for _ in range(2):
        assert all(torch.equal(a, b) for a, b in zip(forward(samples()), expected, strict=True))


def test_callers_are_not_put_into_inference_mode_between_windows(tmp_path: Path) -> None:
    model = open_model(write_model(tmp_path / "m", "qwen2"))
    for _ in float_logits(model)(samples()):
        assert not torch.is_inference_mode_enabled()


def test_a_window_beyond_the_context_is_refused(tmp_path: Path) -> None:
    model = open_model(write_model(tmp_path / "m", "qwen2", max_position_embeddings=8))
    with pytest.raises(ConfigError, match="the model's context is 8"):
        next(float_logits(model)(samples()))
