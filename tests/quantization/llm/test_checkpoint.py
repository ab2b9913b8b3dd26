"""What is wrong with a model folder is said before any weight is read, or when the first bad value is."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.quantization.llm.tiny_models import shard_model, write_model
from workbench.quantization.llm.checkpoint import open_model
from workbench.quantization.llm.forward import rope_of
from workbench.values.errors import ConfigError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model", "qwen2")


def test_a_config_that_does_not_fit_is_refused_with_key_and_value(folder: Path) -> None:
    plain = (folder / "config.json").read_text()
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"architectures": ["MambaForCausalLM"]}, r"MambaForCausalLM is not supported.*Qwen3ForCausalLM"),
        ({"architectures": []}, "names no architecture"),
        ({"model_type": "qwen3"}, "'qwen3' is not what Qwen2ForCausalLM is of"),
        ({"dtype": "float8_e4m3fn"}, "no dtype that is computed in"),
        ({"quantization_config": {"bits": 4}}, "quantized already"),
        ({"hidden_act": "gelu"}, "'gelu' is not supported"),
        ({"rope_scaling": {"type": "longrope"}}, "'longrope' are not supported"),
        ({"rope_scaling": {"type": "yarn"}}, "rotary positions of kind 'yarn' cannot be computed"),
        ({"num_key_value_heads": 3}, "4 heads cannot share 3"),
        ({"hidden_size": 10**12}, "no size from 1 to"),
        ({"num_hidden_layers": "2"}, "'2' is no size"),
        ({"num_hidden_layers": 3}, r"no tensor 'model.layers.2.self_attn.q_proj.weight' and 11 more"),
        ({"intermediate_size": 57}, r"mlp.gate_proj.weight has shape \[56, 32\], config.json means \[57, 32\]"),
        ({"rms_norm_eps": -1}, "no positive number"),
        ({"tie_word_embeddings": "yes"}, "neither true nor false"),
    ]
    for changes, said in wrong:
        (folder / "config.json").write_text(json.dumps({**json.loads(plain), **changes}))
        with pytest.raises(ConfigError, match=said):
            rope_of(open_model(folder).config)


@pytest.mark.parametrize("prefix", ["", "language_model.model."])
def test_names_of_a_part_or_of_a_whole_around_it_are_said(folder: Path, prefix: str) -> None:
    file = folder / "model.safetensors"
    save_file({name.replace("model.", prefix, 1): value for name, value in load_file(file).items()}, file)
    with pytest.raises(ConfigError, match=f"It is named '{prefix}embed_tokens.weight' there.*AutoModelForCausalLM"):
        open_model(folder)


FIRST, SECOND = "model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors"


def sharded(folder: Path, **others: str) -> None:
    """In three shards, with another map from tensors to them."""
    index = shard_model(folder) / "model.safetensors.index.json"
    listed = json.loads(index.read_text())
    listed["weight_map"] |= {name.replace("__", "."): file for name, file in others.items()}
    index.write_text(json.dumps(listed))


def cut(folder: Path, size: int) -> None:
    (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:size])


def integers(folder: Path) -> None:
    file = folder / "model.safetensors"
    save_file({name: value.to(torch.int8) for name, value in load_file(file).items()}, file)


def test_weights_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    damages: list[tuple[Callable[[Path], object], str]] = [
        (lambda f: (f / "model.safetensors").rename(f / "pytorch_model.bin"), "pickled weights"),
        (lambda f: (shard_model(f) / SECOND).unlink(), f"shard {SECOND} is missing of 3"),
        (lambda f: sharded(f, lm_head__weight="../a.safetensors"), r"no name of a \.safetensors"),
        (lambda f: sharded(f, lm_head__weight=FIRST, model__norm__weight=FIRST), "index places"),
        (integers, "weight is of type I8"),
        *((lambda f, size=size: cut(f, size), "no readable safetensors file") for size in (4, 900, 20_000)),
    ]
    for number, (damage, said) in enumerate(damages):
        folder = write_model(tmp_path / str(number), "qwen2")
        damage(folder)
        with pytest.raises(ConfigError, match=said):
            open_model(folder)
