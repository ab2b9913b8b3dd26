"""What a recipe is warned of and what the written folder is refused for are the same."""

from pathlib import Path

import pytest

from tests.targets.ascend_llm.checkpoints import CACHE, MIX, PER_TOKEN, write_checkpoint
from tests.targets.ascend_llm.folders import LINEAR, STATIC, check_values
from workbench.quantization.llm.checkpoint import open_model
from workbench.targets.ascend_llm.recipes import read_recipe
from workbench.targets.ascend_llm.served import read_served
from workbench.targets.ascend_llm.serving_rules import refused_by_engine
from workbench.values.errors import ConfigError

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
}


@pytest.mark.parametrize("name", RECIPES)
def test_what_is_not_warned_of_is_read_and_what_is_warned_of_is_refused(tmp_path: Path, name: str) -> None:
    processes, v0, family, warned = RECIPES[name]
    folder = write_checkpoint(tmp_path, *processes, v0=v0, family=family)
    model = open_model(tmp_path / "model")
    warnings = refused_by_engine(read_recipe(tmp_path / "recipe.yaml", model).recipe, model)
    if not warned:
        assert warnings == ()
        check_values(read_served(folder))
        return
    assert warned in " ".join(warnings)
    with pytest.raises(ConfigError):
        check_values(read_served(folder))


def test_a_rotation_of_tied_embeddings_is_warned_of_and_refused(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, "{type: quarot}", LINEAR, family="qwen3", tie_word_embeddings=True)
    model = open_model(tmp_path / "model")
    (warning,) = refused_by_engine(read_recipe(tmp_path / "recipe.yaml", model).recipe, model)
    assert "tie_word_embeddings: false" in warning
    with pytest.raises(ConfigError, match=r"lm_head\.weight differs from model\.embed_tokens\.weight"):
        check_values(read_served(folder))
