"""An example is built whole or not at all, and alike for a seed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
import torch

from workbench.commands.example.build import Recipe, build_example
from workbench.values.errors import ConfigError

TINY = Recipe(
    task="classification",
    hidden_size=32,
    layers=1,
    training=48,
    epochs=1,
    batch=16,
    learning_rate=1e-3,
    train_length=32,
    validation=24,
    holdout=12,
    calibration=16,
)
"""A handful of texts for a few steps: everything of a real build but its quality."""
FILES = "build.json calibration.csv checkpoint/config.json checkpoint/model.safetensors holdout.csv labels.json "
FILES += "model.onnx tokenizer.json validation.csv"


def files_below(folder: Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


def ignore(_line: str) -> None: ...


def test_a_build_writes_everything_reports_progress_and_is_alike_for_a_seed(tmp_path: Path) -> None:
    lines: list[str] = []
    torch.manual_seed(123)  # the caller's own state must not matter, nor be touched
    build_example("tiny", tmp_path / "tiny", lines.append, recipe=TINY)
    assert torch.initial_seed() == 123
    assert files_below(tmp_path / "tiny") == FILES.split()
    assert [p.name for p in tmp_path.iterdir()] == ["tiny"]
    assert "step" in " ".join(lines)
    assert "compared with PyTorch" in lines[-1]
    receipt = json.loads((tmp_path / "tiny" / "build.json").read_text(encoding="utf-8"))
    assert receipt["measured"]["top1_agreement"] == 1.0
    build_example("tiny", tmp_path / "again", ignore, recipe=TINY)
    build_example("tiny", tmp_path / "other", ignore, recipe=TINY, seed=1)
    weights = {
        name: {i.name: i.raw_data for i in onnx.load(tmp_path / name / "model.onnx").graph.initializer}
        for name in ("tiny", "again", "other")
    }
    assert weights["tiny"] == weights["again"]
    assert weights["tiny"] != weights["other"]
    splits = [
        (tmp_path / "tiny" / f"{split}.csv").read_text(encoding="utf-8").splitlines()[1:]
        for split in ("calibration", "validation", "holdout")
    ]
    assert [len(split) for split in splits] == [16, 24, 12]
    # A few one-line questions have so few wordings that they come again, as they do at a real desk.
    assert len(set(splits[0]) & set(splits[1])) <= 2
    assert len(set(splits[1]) & set(splits[2])) <= 2

    lines.clear()
    build_example("tiny", tmp_path / "tiny", lines.append, recipe=TINY)
    assert lines == [f"tiny: already built in {tmp_path / 'tiny'}"]
    with pytest.raises(ConfigError, match=r"holds another build.*Remove the folder"):
        build_example("tiny", tmp_path / "tiny", ignore, recipe=TINY, seed=1)


def test_ner_is_built_too(tmp_path: Path) -> None:
    build_example("tiny", tmp_path / "tiny", ignore, recipe=replace(TINY, task="ner"))

    assert files_below(tmp_path / "tiny") == [name.replace(".csv", ".jsonl") for name in FILES.split()]


def test_what_is_there_is_left_alone_and_a_crash_on_the_way_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ConfigError, match="holds no finished example"):
        build_example("tiny", tmp_path, ignore, recipe=TINY)
    for line in ("training BERT", "trained in"):

        def crash(said: str, line: str = line) -> None:
            if line in said:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            build_example("tiny", tmp_path / "tiny", crash, recipe=TINY)
        assert files_below(tmp_path) == ["mine.txt"]
    with pytest.raises(ConfigError, match="Did you mean 'loan-ner-mini'"):
        build_example("loan-ner-mni", tmp_path / "x", ignore)
