"""A candidate's recipe: what is equal is equal, what cannot be is refused, and its YAML means what it says."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.targets.ascend_llm.folders import write_llm
from workbench.quantization.llm.checkpoint import LlmModel, open_model
from workbench.quantization.llm.recipe import QuantizeCache, Smooth, Survey
from workbench.report.written.naming import candidate_name
from workbench.report.written.texts import speaking
from workbench.targets.ascend_llm.recipes import read_recipe, recipe_text
from workbench.targets.ascend_llm.serving_rules import refused_by_engine, types_of
from workbench.targets.ascend_llm.settings import GROUPS, LlmSettings
from workbench.values.candidate import Candidate, Quantization
from workbench.values.candidate_words import describe
from workbench.values.errors import ConfigError

STATIC: dict[str, Any] = dict.fromkeys(GROUPS, "W8A8")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LlmModel:
    return open_model(write_llm(tmp_path_factory.mktemp("qwen2"), "qwen2"))


def of(scheme: str = "recipe", **given: Any) -> Candidate:
    quantization = Quantization(scheme=scheme)  # type: ignore[arg-type]  # wrong ones are tried too
    return Candidate(target="ascend-llm", quantization=quantization, compile=LlmSettings(**given))


def test_what_means_nothing_makes_no_other_candidate() -> None:
    dynamic = dict.fromkeys(GROUPS, "W8A8_DYNAMIC")
    assert of(**dynamic).id == of(**dynamic, activations="histogram", strength=0.5).id
    left = {**STATIC, "down": "FLOAT"}
    assert of(**left).id == of(**left, float_down=4).id
    assert of(**STATIC).id == of(**STATIC, generation="v0").id != of(**STATIC, generation="v1").id


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "nothing is quantized"),
        ({"kv_cache": "C8"}, "nothing is quantized"),
        ({**STATIC, "smoothing": "m7"}, "'m7' is none of"),
        ({**STATIC, "qkv": "W4A8"}, "'W4A8' is none of"),
        ({**STATIC, "down": "W8A8_MIX"}, "W8A8 and W8A8_MIX in one recipe"),
        ({**STATIC, "smoothing": "m4", "rotate": True}, "rotation is of the tool's v1"),
        ({**STATIC, "smoothing": "iter_smooth", "activations": "automatic"}, "act_method 3 of v0"),
        ({**STATIC, "smoothing": "m4", "kv_cache": "C8"}, "v0 takes the ranges of keys before rotation"),
        ({**STATIC, "smoothing": "m6", "strength": 1.5}, r"outside \[0, 1\]"),
        ({**STATIC, "float_down": -1}, "negative"),
    ],
)
def test_recipes_that_cannot_be_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        of(**given)


def test_rows_say_what_a_recipe_is() -> None:
    assert describe(of("none")) == "float"
    with speaking("zh"):
        assert candidate_name(of(**STATIC, smoothing="m4")) == "W8A8，m4"
    words = describe(of(**{**STATIC, "down": "W8A8_DYNAMIC"}, smoothing="m4", float_down=2))
    assert words == "W8A8, down W8A8_DYNAMIC, m4, 2 down_proj in float"


def test_groups_left_float_are_left_float_and_no_others(tmp_path: Path, model: LlmModel) -> None:
    left = ["model.layers.1.mlp.down_proj", *(f"model.layers.0.{name}" for name in GROUPS["qkv"])]
    for smoothing in ("m4", "iter_smooth"):
        (tmp_path / "r.yaml").write_text(recipe_text(LlmSettings(**STATIC, smoothing=smoothing), left))
        types = types_of(read_recipe(tmp_path / "r.yaml", model).recipe, model)
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
    model: LlmModel, tmp_path_factory: pytest.TempPathFactory, kinds: tuple[str, ...], **given: Any
) -> None:
    try:
        candidate = of(**dict(zip(GROUPS, kinds, strict=True)), **given)
    except ConfigError:
        return
    recipe_settings = candidate.compile
    assert isinstance(recipe_settings, LlmSettings)
    file = tmp_path_factory.mktemp("recipe") / "r.yaml"
    file.write_text(recipe_text(recipe_settings))
    recipe = read_recipe(file, model).recipe
    assert recipe.generation == recipe_settings.of_generation
    types = types_of(recipe, model)
    for group, kind in zip(GROUPS, kinds, strict=True):
        assert {types[f"model.layers.1.{name}"] for name in GROUPS[group]} == {kind}
    assert any(isinstance(stage, Smooth) for stage in recipe.stages) == (recipe_settings.smoothing is not None)
    cached = any(isinstance(s, QuantizeCache) or (isinstance(s, Survey) and s.cache) for s in recipe.stages)
    assert cached == (recipe_settings.kv_cache is not None)
    assert refused_by_engine(recipe, model) == ()  # no candidate breaks the engine's rules
