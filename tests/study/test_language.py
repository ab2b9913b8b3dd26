"""Language models: groups ranked by what quantizing them alone does."""

import json
from pathlib import Path

from safetensors.torch import load_file, save_file

from tests.commands.running import run
from tests.llm_workspace import write_language_workspace
from tests.quantization.llm.tiny_models import samples, write_model
from workbench.quantization.llm.checkpoint import open_model
from workbench.quantization.llm.run import group_errors
from workbench.targets.ascend_llm.description import GROUPS


def test_a_group_that_reads_one_huge_value_ranks_first(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m", "llama", "float32")
    tensors = load_file(folder / "model.safetensors")
    # one channel of the gated product is a thousand times the others: a scale for all of them loses the others
    tensors["model.layers.1.mlp.up_proj.weight"][3] *= 1000
    tensors["model.layers.1.mlp.down_proj.weight"][:, 3] /= 1000
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    errors = group_errors(open_model(folder), samples(), GROUPS)
    assert len(errors) == 2 * len(GROUPS)
    assert max(errors, key=lambda name: errors[name]) == "model.layers.1.down"
    assert all(error >= 0 for error in errors.values())


def test_the_command_shows_the_ranking_and_gives_it_as_json(tmp_path: Path) -> None:
    file = write_language_workspace(tmp_path)
    told, shown = (run("sensitivity", file, *more) for more in (["--json"], []))
    groups = json.loads(told.stdout)
    assert [g["error"] for g in groups] == sorted((g["error"] for g in groups), reverse=True)
    assert f"   1  {groups[0]['name']}" in shown.stdout
    assert "by kind: " in shown.stdout
    assert "ranked alone" in str(run("sensitivity", file, "--unit", "layer").exception)
