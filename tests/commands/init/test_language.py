"""`init` writes the three files of a language model's question, which a sweep reads as they are."""

from pathlib import Path

import pytest

from tests.llm_workspace import words
from tests.targets.ascend_llm.folders import write_llm, write_texts
from workbench.commands.init.language import initialize_language
from workbench.inputs.experiment import read_experiment
from workbench.values.errors import ConfigError


@pytest.fixture
def given(tmp_path: Path) -> tuple[Path, Path, Path]:
    """A model's folder, prompts and a text; names as users have them."""
    folder = write_llm(tmp_path / "my model", "qwen2")
    prompts = write_texts(tmp_path / "calibration, first.jsonl", [words(12, seed) for seed in range(3)])
    text = tmp_path / "text.txt"
    text.write_text(words(64 * 9))
    return folder, prompts, text


def test_the_files_are_read_as_they_stand_and_nothing_is_overwritten(
    tmp_path: Path, given: tuple[Path, Path, Path]
) -> None:
    folder, prompts, text = given
    started = initialize_language(folder, [text, prompts], tmp_path / "w", name="mine")
    question = read_experiment(started.files[0])
    assert question.calibration.samples == 3
    assert (question.dataset.size("validation"), question.dataset.size("holdout")) == (5, 4)
    assert len(question.space.presets) == 6
    assert started.commands[1] == f"workbench sweep {started.files[0]}"
    with pytest.raises(ConfigError, match="exists already"):
        initialize_language(folder, [prompts, text], tmp_path / "w", name="mine")


def test_a_second_text_is_what_the_search_never_sees(tmp_path: Path, given: tuple[Path, Path, Path]) -> None:
    folder, prompts, text = given
    (tmp_path / "other.txt").write_text(words(64 * 3))
    started = initialize_language(folder, [prompts, text, tmp_path / "other.txt"], tmp_path / "w", name="mine")
    question = read_experiment(started.files[0])
    assert (question.dataset.size("validation"), question.dataset.size("holdout")) == (9, 3)


def test_what_is_missing_or_too_little_is_said_before_anything_is_written(
    tmp_path: Path, given: tuple[Path, Path, Path]
) -> None:
    folder, prompts, text = given
    few = tmp_path / "few.txt"
    few.write_text(words(10))  # one window, of which half cannot be held back
    for data, targets, said in (
        ([prompts], (), "Give --data prompts.jsonl --data text.txt"),
        ([text], (), "0 files of prompts"),
        ([prompts, prompts], (), "2 files of prompts"),
        ([prompts, text, text, text], (), "3 texts"),
        ([prompts, few], (), "leaves a split empty"),
        ([prompts, text], ("onnxruntime",), "onnxruntime takes no folder of a language model"),
    ):
        with pytest.raises(ConfigError, match=said):
            initialize_language(folder, data, tmp_path / "w", name="mine", targets=targets)
        assert not (tmp_path / "w").exists()
