"""An example is built whole or not at all, and alike for a seed."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import pytest
import torch

from workbench.commands.example import build as building
from workbench.commands.example import train
from workbench.commands.example.build import RECIPES, ExampleName, Recipe, build, build_example
from workbench.commands.example.train import Preset, Sample, Schedule
from workbench.values.errors import ConfigError

TINY = Preset(layers=2, hidden_size=64, heads=2, intermediate_size=64)


def test_weights_follow_from_the_seed_alone() -> None:
    samples = [Sample(ids=(2, 5 + i % 3, 3), target=i % 3) for i in range(24)]

    def weights(seed: int) -> torch.Tensor:
        torch.manual_seed(123)  # the caller's own state must not matter, nor be touched
        trained = train.train(
            task="classification",
            preset=TINY,
            schedule=Schedule(epochs=1, batch=8, max_length=8, learning_rate=1e-3),
            samples=samples,
            labels=["a", "b", "c"],
            vocabulary_size=10,
            seed=seed,
            report=ignore,
        )
        assert torch.initial_seed() == 123
        return torch.cat([p.detach().flatten() for p in trained.model.parameters()])

    first, again, other = weights(0), weights(0), weights(1)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


FILES = [
    "build.json",
    "calibration.csv",
    "checkpoint/config.json",
    "checkpoint/model.safetensors",
    "holdout.csv",
    "labels.json",
    "model.onnx",
    "tokenizer.json",
    "validation.csv",
]


def tiny(**settings: Any) -> Recipe:
    """A handful of texts for a few steps: everything of a real build but its quality."""
    return Recipe(
        **{
            "task": "classification",
            "preset": "tiny",
            "training": 48,
            "epochs": 1,
            "batch": 16,
            "learning_rate": 1e-3,
            "train_length": 32,
            "validation": 24,
            "holdout": 12,
            "calibration": 16,
            **settings,
        }
    )


@pytest.fixture(autouse=True)
def _tiny_preset(monkeypatch: pytest.MonkeyPatch) -> None:
    presets: Mapping[str, train.Preset] = {
        "tiny": train.Preset(layers=1, hidden_size=32, heads=2, intermediate_size=64)
    }
    monkeypatch.setattr(train, "PRESETS", presets)


def files_below(folder: Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


def ignore(_line: str) -> None: ...


def test_a_build_writes_everything_reports_progress_and_is_alike_for_a_seed(tmp_path: Path) -> None:
    lines: list[str] = []
    build("tiny", tiny(), tmp_path / "tiny", lines.append)
    assert files_below(tmp_path / "tiny") == FILES
    assert [p.name for p in tmp_path.iterdir()] == ["tiny"]
    assert "step" in " ".join(lines)
    assert "compared with PyTorch" in lines[-1]
    receipt = json.loads((tmp_path / "tiny" / "build.json").read_text(encoding="utf-8"))
    assert receipt["measured"]["top1_agreement"] == 1.0
    build("tiny", tiny(), tmp_path / "again", ignore)
    assert json.loads((tmp_path / "again" / "build.json").read_text())["files"] == receipt["files"]
    os.truncate(tmp_path / "tiny" / "model.onnx", 1000)
    with pytest.raises(ConfigError, match=r"model\.onnx: is missing or was changed"):
        build("tiny", tiny(), tmp_path / "tiny", ignore)


def test_ner_is_built_too(tmp_path: Path) -> None:
    build("tiny", tiny(task="ner"), tmp_path / "tiny", ignore)

    assert files_below(tmp_path / "tiny") == [name.replace(".csv", ".jsonl") for name in FILES]


def test_the_splits_have_their_sizes_a_finished_build_is_kept_and_another_not_put_over_it(tmp_path: Path) -> None:
    build("tiny", tiny(), tmp_path / "tiny", ignore)
    before = (tmp_path / "tiny" / "model.onnx").stat()
    lines: list[str] = []

    build("tiny", tiny(), tmp_path / "tiny", lines.append)
    with pytest.raises(ConfigError, match=r"holds another build.*Remove the folder"):
        build("tiny", tiny(), tmp_path / "tiny", ignore, seed=1)

    assert lines == [f"tiny: already built in {tmp_path / 'tiny'}"]
    assert (tmp_path / "tiny" / "model.onnx").stat().st_mtime_ns == before.st_mtime_ns
    splits = [
        (tmp_path / "tiny" / f"{split}.csv").read_text(encoding="utf-8").splitlines()[1:]
        for split in ("calibration", "validation", "holdout")
    ]
    assert [len(split) for split in splits] == [16, 24, 12]
    # A few one-line questions have so few wordings that they come again, as they do at a real desk.
    assert len(set(splits[0]) & set(splits[1])) <= 2
    assert len(set(splits[1]) & set(splits[2])) <= 2


def test_a_folder_of_someone_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")

    with pytest.raises(ConfigError, match="holds no finished example"):
        build("tiny", tiny(), tmp_path, ignore)

    assert files_below(tmp_path) == ["mine.txt"]


def test_a_crash_on_the_way_leaves_nothing(tmp_path: Path) -> None:
    for line in ("training BERT", "trained in"):

        def crash(said: str, line: str = line) -> None:
            if line in said:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            build("tiny", tiny(), tmp_path / "tiny", crash)
        assert list(tmp_path.iterdir()) == []


def test_an_unknown_example_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Did you mean 'loan-ner-mini'"):
        build_example("loan-ner-mni", tmp_path / "x", ignore)  # type: ignore[arg-type]  # the mistake under test


def test_every_example_has_a_recipe_a_dataset_manifest_and_an_experiment() -> None:
    root = Path(building.__file__).parents[3]

    assert set(RECIPES) == set(get_args(ExampleName))
    for name in RECIPES:
        assert (root / "calibration" / f"{name}.yaml").is_file()
        assert f"examples/{name}/model.onnx" in (root / "experiments" / f"{name}.yaml").read_text(encoding="utf-8")
