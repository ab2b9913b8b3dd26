"""Language models of a few thousand weights, from a seed: folders in Hugging Face's format."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from workbench.quantization.llm.checkpoint import tensor_shapes
from workbench.quantization.llm.config import read_config

CLASSES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
VOCABULARY = 96


def config_of(family: str, dtype: str = "bfloat16", **changes: Any) -> dict[str, Any]:
    """config.json of a tiny model: two query heads on each head of keys and values."""
    return {
        "architectures": [CLASSES[family]],
        "model_type": family,
        "dtype": dtype,
        "hidden_act": "silu",
        "hidden_size": 32,
        "intermediate_size": 56,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        **({"head_dim": 16} if family == "qwen3" else {}),
        "max_position_embeddings": 64,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "vocab_size": VOCABULARY,
        **changes,
    }


def tensors_of(folder: Path, seed: int = 0) -> dict[str, torch.Tensor]:
    """Every tensor of the architecture in the folder: normal values, norms around 1, a few outlying channels."""
    config = read_config(folder)
    random = torch.Generator().manual_seed(seed)
    made: dict[str, torch.Tensor] = {}
    for name, shape in tensor_shapes(config).items():
        values = torch.randn(shape, generator=random)
        if name.endswith("norm.weight"):
            values = 1 + values / 8
            values[torch.randint(0, shape[0], (2,), generator=random)] *= 10
        elif "embed" not in name:
            values = values / 6
        made[name] = values.to(config.dtype)
    if config.tied:
        made.pop("lm_head.weight")
    return made


def write_model(folder: Path, family: str, dtype: str = "bfloat16", *, seed: int = 0, **changes: Any) -> Path:
    """A model folder with one weight file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config_of(family, dtype, **changes)))
    save_file(tensors_of(folder, seed), folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def shard_model(folder: Path, shards: int = 3) -> Path:
    """The same folder with its weights dealt over several files and an index."""
    from safetensors.torch import load_file

    whole = folder / "model.safetensors"
    tensors = load_file(whole)
    whole.unlink()
    places: dict[str, str] = {}
    for number in range(shards):
        name = f"model-{number + 1:05}-of-{shards:05}.safetensors"
        part = dict(list(tensors.items())[number::shards])
        save_file(part, folder / name, metadata={"format": "pt"})
        places.update(dict.fromkeys(part, name))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return folder


def samples(count: int = 3, seed: int = 1) -> list[torch.Tensor]:
    """Ids [1, tokens] of several lengths."""
    random = torch.Generator().manual_seed(seed)
    return [torch.randint(0, VOCABULARY, (1, 7 + 3 * number), generator=random) for number in range(count)]
