"""`workbench export-llm`, and the commands that take a bundle, as a user runs them."""

import shutil
from pathlib import Path

import pytest
from typer.testing import Result

from tests.bundle.language import language_bundle
from tests.commands.running import run
from tests.targets.ascend_llm.checkpoints import checkpoint
from tests.targets.ascend_llm.folders import CASES, GOLDEN, write_texts
from workbench.values.errors import BundleError, ConfigError
from workbench.values.exit_codes import FAILED


def export(base: Path, to: str = "bundle", source: Path | None = None, *more: object) -> Result:
    made = checkpoint()
    texts = write_texts(base / "prompts.jsonl")
    options = ("--model", made.parent / "model", "--cfg", made.parent / "recipe.yaml", "--prompts", texts)
    return run("export-llm", source or made, *options, "--to", base / to, *more)


def test_a_finished_checkpoint_becomes_a_signed_bundle_that_verifies_and_asks_for_no_other_key(tmp_path: Path) -> None:
    assert run("keygen", tmp_path / "key").exit_code == 0
    done = export(tmp_path, "bundle", None, "--sign", tmp_path / "key")
    assert done.exit_code == 0, done.output
    assert "signed by" in done.output
    assert "3 golden prompts replayed on the processor" in done.output
    verified = run("verify", tmp_path / "bundle")
    assert verified.exit_code == 0
    assert "largest difference 0 (0% of the tolerance)" in verified.output
    again = export(tmp_path)
    assert isinstance(again.exception, ConfigError)
    assert "exists already" in str(again.exception)


def test_no_bundle_is_written_into_a_checkpoint_or_of_one_that_the_engine_would_refuse(tmp_path: Path) -> None:
    broken = Path(shutil.copytree(checkpoint(), tmp_path / "broken"))
    assert "lies in the input" in str(export(tmp_path, "broken/bundle", broken).exception)
    assert not (broken / "bundle").exists()
    shutil.copyfile(next(broken.glob("*.safetensors")), broken / "more.safetensors")
    done = export(tmp_path, "bundle", broken)
    assert isinstance(done.exception, BundleError)
    assert "cannot be served" in str(done.exception)
    assert "more.safetensors" in str(done.exception)
    assert not (tmp_path / "bundle").exists()


def test_what_is_no_command_s_of_a_language_model_names_the_page_to_read_and_damage_is_said(tmp_path: Path) -> None:
    done = run("report", language_bundle(), "--to", tmp_path / "report.html")
    assert isinstance(done.exception, ConfigError)
    assert "no report is written" in str(done.exception)
    assert "README.md" in str(done.exception)
    assert not (tmp_path / "report.html").exists()
    folder = Path(shutil.copytree(language_bundle(), tmp_path / "bundle"))
    assert "deploy/README.md" in str(run("serve", folder).exception)
    (folder / "model" / "config.json").write_text("{}")
    damaged = run("verify", folder)
    assert damaged.exit_code == FAILED
    assert "model/config.json has" in str(damaged.exception)


@pytest.mark.skipif(not CASES, reason="the vendor's golden files are not beside this checkout")
def test_a_checkpoint_that_the_vendors_tool_wrote_becomes_a_bundle_too(tmp_path: Path) -> None:
    case = GOLDEN / "cases" / "v1_quarot__qwen3_bf16"
    model, made = tmp_path / "model", tmp_path / "made"
    shutil.copytree(GOLDEN / "models" / "qwen3_bf16", model)
    shutil.copytree(case, made, ignore=shutil.ignore_patterns("config.yaml", "*.npz"))
    shutil.copy(model / "config.json", made)
    for folder in (model, made):
        for file in (GOLDEN / "models" / "tokenizer_384").iterdir():
            shutil.copy(file, folder)
    texts = next((GOLDEN / "calib").glob("*.jsonl"))
    options = ("--model", model, "--cfg", case / "config.yaml", "--prompts", texts, "--to", tmp_path / "bundle")

    done = run("export-llm", made, *options)

    assert done.exit_code == 0, done.output
    assert "8 golden prompts replayed" in done.output
