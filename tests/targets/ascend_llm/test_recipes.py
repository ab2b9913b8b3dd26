"""Recipes are read strictly, and those of candidates mean what they say."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.targets.ascend_llm.folders import LINEAR, WEIGHT, write_llm, write_v0, write_v1
from workbench.quantization.llm.checkpoint import LlmModel, open_model
from workbench.quantization.llm.recipe import Quantize, QuantizeCache, Smooth, Survey
from workbench.quantization.llm.run import rotation_of
from workbench.report.written.wording import candidate_name, speaking
from workbench.targets.ascend_llm.description import GROUPS, LlmSettings
from workbench.targets.ascend_llm.recipes import read_recipe, recipe_text, refused_by_engine, types_of
from workbench.values.candidate import Candidate, Quantization
from workbench.values.errors import ConfigError
from workbench.values.setting_groups import describe


@pytest.fixture(scope="module")
def qwen2(tmp_path_factory: pytest.TempPathFactory) -> LlmModel:
    return open_model(write_llm(tmp_path_factory.mktemp("qwen2"), "qwen2"))


@pytest.fixture(scope="module")
def qwen3(tmp_path_factory: pytest.TempPathFactory) -> LlmModel:
    return open_model(write_llm(tmp_path_factory.mktemp("qwen3"), "qwen3"))


SSZ = "scope: per_channel, method: ssz"


def test_what_is_not_computed_or_not_known_is_refused_with_its_place(
    tmp_path: Path, qwen2: LlmModel, qwen3: LlmModel
) -> None:
    for lines, said in (
        (("calib_cfg: {w_bit: 4}",), r"r.yaml:3: spec.calib_cfg.w_bit: 4 is not computed here"),
        (("calib_cfg: {a_bit: 4}",), "activations of 4 bits"),
        (("calib_cfg: {a_bit: 16, w_method: GPTQ}",), "GPTQ is not computed here"),
        (("calib_cfg: {co_sparse: True}",), "co_sparse: True is not computed here"),
        (("calib_cfg: {w_sym: False}",), "must be true where a_bit is 8"),
        (("calib_cfg: {disable_names: ['model.layers.9.mlp.up_proj']}",), "is no linear of this model"),
        (("calib_cfg: {mm_tensr: False}",), "mm_tensor"),
        (("calib_cfg: {use_fa_quant: True}",), "use_fa_quant: True is not computed here"),
        (("calib_params: {mix_cfg: {'*.w1': w8a8}}",), "names no linear of this model"),
        (("calib_params: {mix_cfg: {'*': w4a8_dynamic}}",), "w4a8_dynamic is not computed here"),
        (("anti_cfg: {anti_method: m7}",), "'m7' is not allowed"),
        (("anti_cfg: {anti_method: m4, a_bit: 16}",), "16 is not allowed with m4"),
    ):
        with pytest.raises(ConfigError, match=said):
            read_recipe(write_v0(tmp_path / "r.yaml", *lines), qwen2)
    for process, said in (
        ("{type: awq}", r"spec.process\[0\].weight_qconfig: is missing"),
        (f"{{type: awq, weight_qconfig: {{{SSZ}}}}}", "ssz is not computed here for awq"),
        ("{type: flex_smooth_quant, alpha: 0.5}", "together or not at all"),
        (LINEAR.replace("False}", "False, method: histogram, ext: {aggregation_type: mean}}", 1), "is for minmax"),
        (LINEAR.replace("method: minmax}}}", "method: minmax, ext: {step: 3}}}}"), "no extras"),
        ("{type: gptq}", "'gptq' is not computed here"),
        ("{type: something}", "'something' is not computed here"),
        (LINEAR.replace("per_channel", "per_group"), "per_group is not computed here"),
        (LINEAR.replace("int8", "int4"), "int4 is not computed here"),
        (LINEAR.replace("per_tensor, symmetric: False", "per_token, symmetric: False"), "per_token is symmetric"),
        (LINEAR[:-1] + ", include: ['*w1*']}", r"'\*w1\*' names nothing of this model"),
        ("{type: quarot, online: True}", "online: True is not computed here"),
        ("{type: quarot, block_size: 32}", "a rotation of 16 values is not built: .* Write block_size: 16"),
        ("{type: iter_smooth, alfa: 0.5}", "alpha"),
    ):
        with pytest.raises(ConfigError, match=said):
            read_recipe(write_v1(tmp_path / "r.yaml", process), qwen3)


def test_a_rotation_of_no_power_of_two_is_refused_with_a_block_that_is_taken(tmp_path: Path, qwen3: LlmModel) -> None:
    model = replace(qwen3, config=replace(qwen3.config, hidden=2560, head_dim=128))
    with pytest.raises(ConfigError, match=r"a rotation of 2560 values is not built.* Write block_size: 128"):
        read_recipe(write_v1(tmp_path / "r.yaml", "{type: quarot}", LINEAR), model)
    read = read_recipe(write_v1(tmp_path / "r.yaml", "{type: quarot, block_size: 128}", LINEAR), model)
    turned = rotation_of(model, read.recipe)
    assert turned is not None
    torch.testing.assert_close(turned.residual @ turned.residual.T, torch.eye(2560), rtol=0, atol=1e-5)
    assert not turned.residual[:128, 128:].any()


SHIPPED = """
apiversion: modelslim_v1
metadata: {config_id: a}
default_w8a8_dynamic: &default_w8a8_dynamic
  act: {scope: per_token, dtype: int8, symmetric: True, method: minmax}
  weight: {scope: per_channel, dtype: int8, symmetric: True, method: minmax}
spec:
  process:
    - {type: quarot, block_size: 4, online: False, max_tp_size: 4, down_proj_online_layers: []}
    - {type: linear_quant, qconfig: *default_w8a8_dynamic, include: ["*self_attn*"]}
    - {type: linear_quant, qconfig: *default_w8a8_dynamic, include: ["*mlp*"], exclude: ["*down_proj"]}
  save: [{type: ascendv1_saver, part_file_size: 4}]
"""


def test_a_qconfig_may_be_written_once_at_the_top_and_a_key_that_nothing_repeats_may_not(
    tmp_path: Path, qwen3: LlmModel
) -> None:
    cfg = tmp_path / "r.yaml"
    cfg.write_text(SHIPPED)
    stages = read_recipe(cfg, qwen3).recipe.stages
    found = {name: how.type for each in stages if isinstance(each, Quantize) for name, how in each.linears.items()}
    assert {name.rpartition(".")[2] for name in qwen3.linears() if name not in found} == {"down_proj"}
    assert set(found.values()) == {"W8A8_DYNAMIC"}
    cfg.write_text(SHIPPED + "default_w8a8: {act: 1}\n")
    with pytest.raises(ConfigError, match="default_w8a8: unknown key"):
        read_recipe(cfg, qwen3)


def test_what_awq_of_the_tool_ruins_is_told(tmp_path: Path, qwen3: LlmModel, qwen2: LlmModel) -> None:
    process = f"{{type: awq, weight_qconfig: {{{WEIGHT[9:-1]}}}"
    cfg = write_v1(tmp_path / "r.yaml", process + "}", LINEAR)
    assert "leaves v_proj" in " ".join(refused_by_engine(read_recipe(cfg, qwen3).recipe, qwen3))
    assert not refused_by_engine(read_recipe(cfg, qwen2).recipe, qwen2)
    sound = write_v1(tmp_path / "s.yaml", process + ", enable_subgraph_type: [norm-linear, up-down]}", LINEAR)
    assert not refused_by_engine(read_recipe(sound, qwen3).recipe, qwen3)


EVERY_W8A8: dict[str, Any] = dict.fromkeys(GROUPS, "W8A8")


def of(scheme: str = "recipe", **given: Any) -> Candidate:
    quantization = Quantization(scheme=scheme)  # type: ignore[arg-type]  # wrong ones are tried too
    return Candidate(target="ascend-llm", quantization=quantization, compile=LlmSettings(**given))


def test_what_means_nothing_makes_no_other_candidate() -> None:
    dynamic = dict.fromkeys(GROUPS, "W8A8_DYNAMIC")
    assert of(**dynamic).id == of(**dynamic, activations="histogram", strength=0.5).id
    left = {**EVERY_W8A8, "down": "FLOAT"}
    assert of(**left).id == of(**left, float_down=4).id
    assert of(**EVERY_W8A8).id == of(**EVERY_W8A8, generation="v0").id != of(**EVERY_W8A8, generation="v1").id


def test_recipes_that_cannot_be_are_refused() -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({}, "nothing is quantized"),
        ({"kv_cache": "C8"}, "nothing is quantized"),
        ({**EVERY_W8A8, "down": "W8A8_MIX"}, "W8A8 and W8A8_MIX in one recipe"),
        ({**EVERY_W8A8, "smoothing": "m4", "rotate": True}, "rotation is of the tool's v1"),
        ({**EVERY_W8A8, "smoothing": "iter_smooth", "activations": "automatic"}, "act_method 3 of v0"),
        ({**EVERY_W8A8, "smoothing": "m4", "kv_cache": "C8"}, "v0 takes the ranges of keys before rotation"),
        ({**EVERY_W8A8, "smoothing": "m6", "strength": 1.5}, r"outside \[0, 1\]"),
        ({**EVERY_W8A8, "float_down": -1}, "negative"),
    ]
    for given_, said in wrong:
        with pytest.raises(ConfigError, match=said):
            of(**given_)


def test_rows_say_what_a_recipe_is() -> None:
    assert describe(of("none")) == "float"
    with speaking("zh"):
        assert candidate_name(of(**EVERY_W8A8, smoothing="m4")) == "W8A8，m4"
    words = describe(of(**{**EVERY_W8A8, "down": "W8A8_DYNAMIC"}, smoothing="m4", float_down=2))
    assert words == "W8A8, down W8A8_DYNAMIC, m4, 2 down_proj in float"


def test_groups_left_float_are_left_float_and_no_others(tmp_path: Path, qwen2: LlmModel) -> None:
    left = ["model.layers.1.mlp.down_proj", *(f"model.layers.0.{name}" for name in GROUPS["qkv"])]
    for smoothing in ("m4", "iter_smooth"):
        (tmp_path / "r.yaml").write_text(recipe_text(LlmSettings(**EVERY_W8A8, smoothing=smoothing), left))
        types = types_of(read_recipe(tmp_path / "r.yaml", qwen2).recipe, qwen2)
        assert sorted(name for name, kind in types.items() if kind == "FLOAT") == sorted(left)


KINDS = ("W8A8", "W8A8_DYNAMIC", "W8A8_MIX", "W8A16", "FLOAT")


@settings(max_examples=60)
@given(
    kinds=st.tuples(*(st.sampled_from(KINDS) for _ in GROUPS)),
    smoothing=st.sampled_from((None, "m1", "m2", "m4", "m6", "smooth_quant", "iter_smooth", "flex_smooth_quant")),
    strength=st.sampled_from((None, 0.25, 0.5)),
    activations=st.sampled_from((None, "minmax", "histogram", "automatic")),
    weights=st.sampled_from((None, "mse", "output_mse")),
    kv_cache=st.sampled_from((None, "C8")),
    generation=st.sampled_from((None, "v0", "v1")),
)
def test_every_possible_recipe_is_read_by_the_tools_reader_as_it_was_meant(
    qwen2: LlmModel, tmp_path_factory: pytest.TempPathFactory, kinds: tuple[str, ...], **given: Any
) -> None:
    try:
        candidate = of(**dict(zip(GROUPS, kinds, strict=True)), **given)
    except ConfigError:
        return
    recipe_settings = candidate.compile
    assert isinstance(recipe_settings, LlmSettings)
    file = tmp_path_factory.mktemp("recipe") / "r.yaml"
    file.write_text(recipe_text(recipe_settings))
    recipe = read_recipe(file, qwen2).recipe
    assert recipe.generation == recipe_settings.of_generation
    types = types_of(recipe, qwen2)
    for group, kind in zip(GROUPS, kinds, strict=True):
        assert {types[f"model.layers.1.{name}"] for name in GROUPS[group]} == {kind}
    assert any(isinstance(stage, Smooth) for stage in recipe.stages) == (recipe_settings.smoothing is not None)
    cached = any(isinstance(s, QuantizeCache) or (isinstance(s, Survey) and s.cache) for s in recipe.stages)
    assert cached == (recipe_settings.kv_cache is not None)
    assert refused_by_engine(recipe, qwen2) == ()  # no candidate breaks the engine's rules
