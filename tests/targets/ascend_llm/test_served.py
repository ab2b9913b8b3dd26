"""A checkpoint folder is taken as vLLM-Ascend would take it, and refused with file, tensor and reason."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from tests.targets.ascend_llm.checkpoints import (
    CACHE,
    MIX,
    PER_TOKEN,
    change,
    checkpoint,
    copied,
    describe,
    weight_file,
    write_checkpoint,
)
from tests.targets.ascend_llm.folders import LINEAR, STATIC, check_values
from workbench.quantization.llm.checkpoint import open_model
from workbench.targets.ascend_llm.recipes import read_recipe, refused_by_engine
from workbench.targets.ascend_llm.served import read_served
from workbench.values.errors import ConfigError

Q, K, DOWN = (f"model.layers.0.{name}" for name in ("self_attn.q_proj", "self_attn.k_proj", "mlp.down_proj"))


def read(folder: Path) -> None:
    check_values(read_served(folder))


Damage = Callable[[Path], object]


def tensor(name: str, new: Callable[[torch.Tensor], torch.Tensor]) -> Damage:
    return lambda folder: change(folder, name, new)


def said(key: str, kind: object) -> Damage:
    """In the description."""
    return lambda folder: describe(folder, {key: kind})


BAD: dict[str, tuple[Damage, str]] = {
    "no-weights": (lambda f: weight_file(f).unlink(), "holds 0 weight files"),
    "cut-short": (
        lambda f: weight_file(f).write_bytes(weight_file(f).read_bytes()[:3000]),
        "no readable safetensors file",
    ),
    "no-description": (lambda f: (f / "quant_model_description.json").unlink(), "quant_model_description.json"),
    "mixed-types": (said(f"{K}.weight", "FLOAT"), r"k_proj FLOAT, v_proj W8A8\. .* as one qkv_proj"),
    "no-type": (said(f"{DOWN}.weight", None), "is missing; the engine looks up"),
    "other-type": (said(f"{DOWN}.weight", "W4A8_DYNAMIC"), "'W4A8_DYNAMIC' is not computed here"),
    "quantized-head": (said("lm_head.weight", "W8A8"), "embedding and head stay FLOAT"),
    "listed-alone": (said("model.extra", "FLOAT"), "model.extra: is listed, but in no weight file"),
    "unlisted": (said("model.norm.weight", None), "model.norm.weight is not listed"),
    "missing-tensor": (
        lambda f: change(describe(f, {f"{Q}.quant_bias": None}), f"{Q}.quant_bias", None),
        "has no tensor .*q_proj.quant_bias of a W8A8",
    ),
    "float-weight": (tensor(f"{Q}.weight", lambda w: w.bfloat16()), "weight of a W8A8 linear is BF16, not I8"),
    "factors-of-float16": (
        tensor(f"{Q}.deq_scale", lambda d: d.view(torch.int32).to(torch.int64)),
        "deq_scale .* is I64, not F32 for a torch.bfloat16",
    ),
    "flat-scale": (tensor(f"{Q}.weight_scale", torch.flatten), r"weight_scale .* has shape \[32\], .* \[32, 1\]"),
    "nan-scale": (tensor(f"{Q}.weight_scale", lambda s: s * float("nan")), "weight_scale holds 32 values that are NaN"),
    "zero-scale": (tensor(f"{DOWN}.input_scale", lambda s: s * 0), "input_scale holds 0.0; a scale is positive"),
    "negative-factor": (tensor(f"{DOWN}.deq_scale", torch.neg), "deq_scale holds -.*; a factor is positive"),
    "half-an-offset": (tensor(f"{DOWN}.input_offset", lambda o: o * 0 + 0.5), "is 0.5; the engine holds it as int8"),
    "weight-offset": (tensor(f"{DOWN}.weight_offset", lambda o: o + 1), "weight_offset is not zero everywhere"),
    "sum-beyond": (
        tensor(f"{DOWN}.quant_bias", lambda b: b.index_fill(0, torch.tensor([3]), 2**31 - 1)),
        "quant_bias is 2147483647 in row 3",
    ),
    "two-ranges": (tensor(f"{K}.input_scale", lambda s: s * 2), "k_proj has input_scale .* one pair for qkv_proj"),
    "float-model-beside": (
        lambda f: save_file({"model.norm.weight": torch.ones(32)}, f / "model.safetensors"),
        "model.norm.weight is in model.safetensors too",
    ),
    "index-of-the-float-model": (
        lambda f: (f / "model.safetensors.index.json").write_text('{"weight_map": {}}'),
        "the engine loads only what an index of this name lists",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_an_engine_would_refuse_or_compute_wrongly_is_refused(tmp_path: Path, name: str) -> None:
    damage, rule = BAD[name]
    folder = copied(checkpoint(), tmp_path / "c")
    damage(folder)
    with pytest.raises(ConfigError, match=rule) as error:
        read(folder)
    assert str(folder) in str(error.value)


def test_a_quantized_cache_that_an_engine_would_misread_is_refused(tmp_path: Path) -> None:
    cached, another = write_checkpoint(tmp_path / "cached", CACHE, LINEAR, family="qwen3"), f"{K}.k_proj.kv_cache_scale"
    bad: list[tuple[Damage, str]] = [
        (said("kv_cache_type", None), "kv_cache_type: is missing although C8 tensors are listed"),
        (said("kv_cache_type", "C4"), "'C4' is not 'C8'"),
        (said(f"{K}.kv_cache_offset", None), "is missing although"),
        (tensor(f"{K}.kv_cache_offset", lambda o: o + 1), "the engine reads the cache back by its scale"),
        (tensor(f"{K}.kv_cache_scale", lambda s: s * 1e-45), "holds 0.0; a scale is positive"),
        (
            lambda f: change(describe(f, {another: "C8"}), another, torch.ones(0)),
            "is no tensor of this architecture.*use dynamic_cache of v1",
        ),
    ]
    for number, (damage, rule) in enumerate(bad):
        folder = copied(cached, tmp_path / str(number))
        damage(folder)
        with pytest.raises(ConfigError, match=rule):
            read(folder)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**31), kind=st.sampled_from(["cut", "flip", "zeros", "description"]))
def test_random_damage_is_an_error_with_the_file_or_goes_unseen_in_a_number(seed: int, kind: str) -> None:
    """Nothing but ConfigError comes out: no crash, no other exception."""
    random = Random(seed)
    with tempfile.TemporaryDirectory() as place:
        folder = copied(checkpoint(), Path(place) / "c")
        file = folder / "quant_model_description.json" if kind == "description" else weight_file(folder)
        content = bytearray(file.read_bytes())
        at = random.randrange(12_000 if kind == "flip" else len(content)) % len(content)
        if kind == "cut":
            del content[at:]
        elif kind == "zeros":
            content[at : at + 64] = bytes(len(content[at : at + 64]))
        else:
            content[at] ^= 1 << random.randrange(8)
        file.write_bytes(content)
        try:
            read(folder)
        except ConfigError as error:
            assert str(folder) in str(error)  # noqa: PT017  # damage within a number raises nothing


M4 = "anti_cfg: {anti_method: m4}\n  "
ALONE = "calib_cfg: {a_bit: 16, mm_tensor: False}"
RECIPES = {
    "static": ((), STATIC, "qwen2", ""),
    "dynamic": ((), STATIC[:-1] + ", is_dynamic: True}", "qwen2", ""),
    "mix": ((MIX,), "", "llama", ""),
    "per-token": ((PER_TOKEN,), "", "qwen3", ""),
    "weights-alone": ((), ALONE, "qwen2", ""),
    "cache": ((CACHE, LINEAR), "", "qwen3", ""),
    "shift": ((), M4 + STATIC, "qwen3", ""),
    "mixed": ((), STATIC + "\n  calib_params: {mix_cfg: {'*.v_proj': w8a16}}", "qwen2", "needs one type"),
    "asymmetric": ((), ALONE[:-1] + ", w_sym: False}", "qwen2", "asymmetric weights"),
    "one-scale": ((), "calib_cfg: {mm_tensor: True}", "qwen2", "mm_tensor: False"),
    "shift-of-floats": ((), M4 + STATIC[:-1] + ", is_dynamic: True}", "qwen3", "a bias that vLLM-Ascend skips"),
    "tied-rotation": (("{type: quarot}", LINEAR), "", "qwen3", "tie_word_embeddings: false"),
}


@pytest.mark.parametrize("name", RECIPES)
def test_what_is_not_warned_of_is_read_and_what_is_warned_of_is_refused(tmp_path: Path, name: str) -> None:
    processes, v0, family, warned = RECIPES[name]
    tied = name.startswith("tied")
    folder = write_checkpoint(tmp_path, *processes, v0=v0, family=family, tie_word_embeddings=tied)
    model = open_model(tmp_path / "model")
    warnings = refused_by_engine(read_recipe(tmp_path / "recipe.yaml", model).recipe, model)
    if not warned:
        assert warnings == ()
        check_values(read_served(folder))
        return
    assert warned in " ".join(warnings)
    with pytest.raises(ConfigError, match="lm_head.weight differs from model.embed_tokens" if tied else None):
        check_values(read_served(folder))
