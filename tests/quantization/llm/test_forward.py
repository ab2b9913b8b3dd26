"""Our forward pass, one block at a time, is transformers' to the bit."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.quantization.llm.tiny_models import samples, write_model
from workbench.graph.export import quiet_transformers
from workbench.quantization.llm.checkpoint import open_model
from workbench.quantization.llm.forward import float_decoder, logits_of
from workbench.values.errors import ConfigError

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}


def theirs(folder: Path, ids: list[torch.Tensor]) -> list[torch.Tensor]:
    with quiet_transformers(), torch.inference_mode():
        model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype="auto", attn_implementation="sdpa").eval()
        return [model(each, attention_mask=torch.ones_like(each)).logits for each in ids]


def ours(folder: Path, ids: list[torch.Tensor]) -> list[torch.Tensor]:
    model = open_model(folder)
    return list(logits_of(float_decoder(model), "prefill")(ids))


def equal(folder: Path) -> bool:
    return all(torch.equal(a, b) for a, b in zip(ours(folder, samples()), theirs(folder, samples()), strict=True))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_logits_equal_those_of_transformers_to_the_bit(tmp_path: Path, family: str, dtype: str) -> None:
    assert equal(write_model(tmp_path / "m", family, dtype))


VARIANTS: dict[str, dict[str, Any]] = {
    "tied": {"tie_word_embeddings": True},
    "biased": {"attention_bias": True, "mlp_bias": True},
    "linear": {"rope_scaling": {"type": "linear", "factor": 2.0}},
    "dynamic": {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}},
    "llama3": {"rope_scaling": LLAMA3},
    "yarn": {"rope_scaling": YARN},
    "heads-of-their-own": {"num_key_value_heads": 4},
    "one-head-of-keys": {"num_key_value_heads": 1, "head_dim": 24},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_variants_of_llama_equal_transformers_to_the_bit(tmp_path: Path, name: str) -> None:
    assert equal(write_model(tmp_path / "m", "llama", "bfloat16", **VARIANTS[name]))


def test_weights_of_another_float_type_are_rounded_to_the_models(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m", "qwen2", "float32")
    config = (folder / "config.json").read_text()
    (folder / "config.json").write_text(config.replace("float32", "bfloat16"))
    assert open_model(folder).cast
    assert equal(folder)


def test_a_prompt_beyond_the_context_is_refused_with_both_lengths(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m", "qwen2", max_position_embeddings=8)
    with pytest.raises(ConfigError, match=r"sample 1 has 10 tokens, the model's context is 8"):
        ours(folder, samples())


def test_a_sliding_window_is_the_context(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m", "qwen2", use_sliding_window=True, sliding_window=9, max_window_layers=0)
    assert open_model(folder).config.context == 9
    assert torch.equal(ours(folder, samples(1))[0], theirs(folder, samples(1))[0])
