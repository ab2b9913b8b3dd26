"""Recipes are read strictly: what is not computed is refused by name, with file, line and key."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.targets.ascend_llm.folders import LINEAR, STATIC, WEIGHT, write_llm, write_v0, write_v1
from workbench.quantization.llm.checkpoint import LlmModel, open_model
from workbench.quantization.llm.recipe import Quantize
from workbench.quantization.llm.rotation import rotation_of
from workbench.targets.ascend_llm.recipes import read_recipe
from workbench.targets.ascend_llm.serving_rules import refused_by_engine
from workbench.values.errors import ConfigError


@pytest.fixture(scope="module")
def qwen2(tmp_path_factory: pytest.TempPathFactory) -> LlmModel:
    return open_model(write_llm(tmp_path_factory.mktemp("qwen2"), "qwen2"))


@pytest.fixture(scope="module")
def qwen3(tmp_path_factory: pytest.TempPathFactory) -> LlmModel:
    return open_model(write_llm(tmp_path_factory.mktemp("qwen3"), "qwen3"))


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (("calib_cfg: {w_bit: 4}",), r"r.yaml:3: spec.calib_cfg.w_bit: weights of other than 8 bits"),
        (("calib_cfg: {a_bit: 4}",), "activations of 4 bits"),
        (("calib_cfg: {a_bit: 16, w_method: GPTQ}",), "GPTQ is not computed here"),
        (("calib_cfg: {co_sparse: True}",), "sparse weights"),
        (("calib_cfg: {w_sym: False}",), "must be true where a_bit is 8"),
        (("calib_cfg: {disable_names: ['model.layers.9.mlp.up_proj']}",), "is no linear of this model"),
        (("calib_cfg: {mm_tensr: False}",), "mm_tensor"),
        (("calib_cfg: {use_fa_quant: True}",), "quantized attention"),
        (("calib_params: {mix_cfg: {'*.w1': w8a8}}",), "names no linear of this model"),
        (("calib_params: {mix_cfg: {'*': w4a8_dynamic}}",), "w4a8_dynamic is not computed here"),
        (("anti_cfg: {anti_method: m7}",), "'m7' is not allowed"),
        (("anti_cfg: {anti_method: m4, a_bit: 16}",), "16 is not allowed with m4"),
    ],
)
def test_v0_refuses(tmp_path: Path, qwen2: LlmModel, lines: tuple[str, ...], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read_recipe(write_v0(tmp_path / "r.yaml", *lines), qwen2)


SSZ = "scope: per_channel, method: ssz"


@pytest.mark.parametrize(
    ("process", "said"),
    [
        ("{type: awq}", r"spec.process\[0\].weight_qconfig: is missing"),
        (f"{{type: awq, weight_qconfig: {{{SSZ}}}}}", "ssz is not computed here for awq"),
        ("{type: flex_smooth_quant, alpha: 0.5}", "together or not at all"),
        (LINEAR.replace("False}", "False, method: histogram, ext: {aggregation_type: mean}}", 1), "is for minmax"),
        (LINEAR.replace("method: minmax}}}", "method: minmax, ext: {step: 3}}}}"), "no extras"),
        ("{type: gptq}", "gptq is not computed here"),
        ("{type: something}", "'something' is no process"),
        (LINEAR.replace("per_channel", "per_group"), "'per_group' is not allowed"),
        (LINEAR.replace("int8", "int4"), "int4 is not computed here"),
        (LINEAR.replace("per_tensor, symmetric: False", "per_token, symmetric: False"), "per_token is symmetric"),
        (LINEAR[:-1] + ", include: ['*w1*']}", r"'\*w1\*' names nothing of this model"),
        ("{type: quarot, online: True}", "rotations at run time"),
        ("{type: quarot, block_size: 32}", "a rotation of 16 values is not built: .* Write block_size: 16"),
        ("{type: iter_smooth, alfa: 0.5}", "alpha"),
    ],
)
def test_v1_refuses(tmp_path: Path, qwen3: LlmModel, process: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read_recipe(write_v1(tmp_path / "r.yaml", process), qwen3)


@pytest.mark.parametrize("hidden", [2560, 3584, 5120])
def test_a_rotation_of_no_power_of_two_is_refused_with_a_block_that_is_taken(
    tmp_path: Path, qwen3: LlmModel, hidden: int
) -> None:
    model = replace(qwen3, config=replace(qwen3.config, hidden=hidden, head_dim=128))
    with pytest.raises(ConfigError, match=f"a rotation of {hidden} values is not built.* Write block_size: 128"):
        read_recipe(write_v1(tmp_path / "r.yaml", "{type: quarot}", LINEAR), model)
    read = read_recipe(write_v1(tmp_path / "r.yaml", "{type: quarot, block_size: 128}", LINEAR), model)
    assert read.recipe.rotate is not None
    turned = rotation_of(model.config, read.recipe.rotate)
    torch.testing.assert_close(turned.residual @ turned.residual.T, torch.eye(hidden), rtol=0, atol=1e-5)
    torch.testing.assert_close(turned.head, turned.residual[-128:, -128:], rtol=0, atol=0)
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


def test_types_by_layer_take_the_exact_name_before_the_first_pattern(tmp_path: Path, qwen2: LlmModel) -> None:
    mixed = "calib_params: {mix_cfg: {'*.down_proj': w8a8_dynamic, 'model.layers.1.mlp.down_proj': float}}"
    recipe = read_recipe(write_v0(tmp_path / "r.yaml", STATIC, mixed), qwen2).recipe
    stage = recipe.stages[-1]
    assert isinstance(stage, Quantize)
    assert [stage.linears[f"model.layers.{b}.mlp.down_proj"].type for b in (0, 1)] == ["W8A8_DYNAMIC", "FLOAT"]
