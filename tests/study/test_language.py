"""Language models: the block that goes wrong first, and groups ranked by what quantizing them alone does."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from tests.llm_workspace import write_language_workspace
from tests.quantization.llm.tiny_models import samples, write_model
from tests.targets.ascend_llm.checkpoints import checkpoint
from tests.targets.ascend_llm.folders import LINEAR, write_llm, write_texts, write_v1
from workbench.api.study import compare
from workbench.commands.cli import app
from workbench.quantization.llm.checkpoint import open_model
from workbench.quantization.llm.ranking import group_errors
from workbench.targets.ascend_llm.calibrate import calibrate_llm
from workbench.targets.ascend_llm.settings import GROUPS
from workbench.values.errors import ConfigError


def test_a_damaged_linear_is_where_the_error_jumps(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(checkpoint("qwen2", "float32"), tmp_path / "damaged"))
    file = next(folder.glob("*.safetensors"))
    tensors = load_file(file)
    name = "model.layers.1.self_attn.o_proj"
    tensors[f"{name}.weight"] = -tensors[f"{name}.weight"]
    save_file(tensors, file)
    texts = checkpoint("qwen2", "float32").parent / "texts.jsonl"
    sound = compare(checkpoint("qwen2", "float32").parent / "model", checkpoint("qwen2", "float32"), data=texts)
    found = compare(checkpoint("qwen2", "float32"), folder, data=texts)
    assert found.first_jump.tensor == name
    assert found.first_jump.op_type == "W8A8"
    before = next(row for row in found.rows if row.tensor == "model.layers.0")
    assert before.sqnr_db is None  # equal up to there
    assert max(row.relative_error for row in sound.rows if row.op_type == "block") < 0.5
    assert not found.passed


def test_a_rotated_checkpoint_is_compared_in_the_models_own_stream(tmp_path: Path) -> None:
    write_llm(tmp_path / "model", "qwen3", "float32", hidden_size=32, head_dim=16)
    texts = write_texts(tmp_path / "texts.jsonl")
    recipe = write_v1(tmp_path / "r.yaml", "{type: quarot}", LINEAR)
    calibrate_llm(tmp_path / "model", tmp_path / "out", cfg=recipe, data=texts)
    found = compare(tmp_path / "model", tmp_path / "out", data=texts)
    blocks = [row for row in found.rows if row.op_type == "block"]
    assert len(blocks) == 2
    assert all(row.cosine > 0.9 for row in blocks)


def test_what_cannot_be_compared_is_said(tmp_path: Path) -> None:
    model = checkpoint().parent / "model"
    with pytest.raises(ConfigError, match="compared over texts"):
        compare(model, checkpoint())
    write_llm(tmp_path / "other", num_hidden_layers=3)
    with pytest.raises(ConfigError, match="their sizes differ"):
        compare(model, tmp_path / "other", data=model.parent / "texts.jsonl")


def test_the_command_prints_blocks_and_fails_beyond_the_limits() -> None:
    made = checkpoint()
    words = ["compare", made.parent / "model", made, "--data", made.parent / "texts.jsonl"]

    def run(*more: str) -> Any:
        return CliRunner().invoke(app, [*map(str, words), *more])

    strict, loose = run("--cosine", "0.999999"), run("--cosine", "0.5", "--json")
    assert strict.exit_code == 1
    printed = " ".join(strict.output.split())  # at any width
    assert "│ block" in printed or "model.layers.0 block" in printed
    assert "The first tensor beyond them: model.layers.0.self_attn.o_proj (W8A8)." in printed
    assert loose.exit_code == 0
    body = json.loads(loose.output)
    assert body["passed"] is True
    assert {row["tensor"] for row in body["rows"]} >= {"logits", "model.layers.1"}


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
    program = "import sys; from workbench.commands.cli import main; main()"

    def run(*more: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-c", program, "sensitivity", str(file), *more],
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == code, done.stderr
        return done

    groups = json.loads(run("--json").stdout)
    assert [g["error"] for g in groups] == sorted((g["error"] for g in groups), reverse=True)
    text = run().stdout
    assert f"   1  {groups[0]['name']}" in text
    assert "by kind: " in text
    assert "ranked alone" in run("--unit", "layer", code=2).stderr
