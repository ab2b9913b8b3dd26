"""Checkpoints of every family and form of a model folder: biases, tied embeddings, shards, shared heads."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.quantization.llm.tiny_models import shard_model
from tests.targets.ascend_llm.folders import STATIC, write_llm, write_texts, write_v0
from workbench.targets.ascend_llm.calibrate import calibrate_llm

FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama-biased": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama-tied": ("llama", {"tie_word_embeddings": True}),
    "llama-one-head-of-keys": ("llama", {"num_key_value_heads": 1}),
    "llama-heads-of-their-own": ("llama", {"num_key_value_heads": 4}),
    "qwen2": ("qwen2", {"num_key_value_heads": 1}),
    "qwen3": ("qwen3", {"head_dim": 24}),
}


def tensors(folder: Path) -> dict[str, torch.Tensor]:
    return {name: value for file in sorted(folder.glob("*.safetensors")) for name, value in load_file(file).items()}


def run(base: Path, cfg: Path, out: str) -> dict[str, torch.Tensor]:
    return tensors(calibrate_llm(base / "model", base / out, cfg=cfg, data=write_texts(base / "texts.jsonl")).folder)


@pytest.mark.parametrize("form", FORMS)
def test_a_static_checkpoint_holds_what_the_description_names_and_dequantizes_to_the_weights(
    tmp_path: Path, form: str
) -> None:
    family, changes = FORMS[form]
    folder = write_llm(tmp_path / "model", family, "float16", **changes)
    made = run(tmp_path, write_v0(tmp_path / "r.yaml"), "out")
    described = json.loads((tmp_path / "out" / "quant_model_description.json").read_text())
    assert {name for name in described if "." in name} == set(made)
    floats = load_file(folder / "model.safetensors")
    for name, value in floats.items():
        if made[name].dtype != torch.int8:
            assert torch.equal(made[name], value)
            continue
        step = made[name.replace("weight", "weight_scale")].float()
        assert ((made[name].float() * step - value.float()).abs() <= 0.51 * step + 1e-3 * value.float().abs()).all()
    assert (tmp_path / "out" / "chat_template.jinja").is_file()
    assert torch.equal(made["lm_head.weight"], floats.get("lm_head.weight", floats["model.embed_tokens.weight"]))


def test_a_model_in_shards_gives_the_same_bytes(tmp_path: Path) -> None:
    write_llm(tmp_path / "model", "llama", "bfloat16", attention_bias=True)
    cfg = write_v0(tmp_path / "r.yaml", "anti_cfg: {anti_method: m2}", STATIC)
    whole = run(tmp_path, cfg, "whole")
    shard_model(tmp_path / "model")
    parts = run(tmp_path, cfg, "parts")
    assert set(whole) == set(parts)
    assert all(torch.equal(parts[name], value) for name, value in whole.items())
    assert not list((tmp_path / "parts").glob("model*.index.json"))
