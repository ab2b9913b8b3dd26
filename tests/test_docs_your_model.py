"""The examples of docs/your-model.md, taken from the page and executed."""

import re
from pathlib import Path

import numpy as np
import pytest
from ruamel.yaml import YAML

from workbench.inputs.dataset import read_interface, read_manifest
from workbench.inputs.dataset.interface_reader import interface_of
from workbench.inputs.library_metrics import NAMED, WHOLE_SET
from workbench.inputs.metrics import scorer_of
from workbench.inputs.metrics.agreement.judges import MEANINGS
from workbench.inputs.metrics.outcomes import MeasuredOutcomes, summarize
from workbench.values.documents.yaml_reader import read_yaml

PAGE = (Path(__file__).parent.parent / "docs" / "your-model.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)


def test_the_metric_and_the_loader_of_the_page_work_together(tmp_path: Path) -> None:
    for code in blocks("python"):
        if name := re.match(r"# (\w+\.py)\n", code):
            (tmp_path / name[1]).write_text(code)
    (manifest,) = (text for text in blocks("yaml") if "metric:" in text)
    (tmp_path / "manifest.yaml").write_text(manifest)
    dataset = read_manifest(tmp_path / "manifest.yaml")
    scorer = scorer_of(dataset, None)
    (batch,) = dataset.batches("validation", 100)
    float_angles = np.zeros((len(batch), 3), np.float32)
    angles = float_angles + np.linspace(0.01, 0.1, len(batch), dtype=np.float32)[:, None]

    found = scorer.score({"angles": angles}, batch, {"angles": float_angles})

    assert isinstance(found, MeasuredOutcomes)
    assert summarize(found)["within"] == pytest.approx(np.mean(angles[:, 0] < 0.05))
    assert found.units.tolist() == ["", "rad"]
    assert dataset.size("holdout") == 10


def test_the_array_file_of_the_page_is_a_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = (text for text in blocks("python") if "np.savez" in text)
    monkeypatch.chdir(tmp_path)
    exec(code, {})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["test.npz", "train.npz"]
    files = "files: {calibration: train.npz, validation: test.npz}"
    Path("m.yaml").write_text(f"version: 1\ntask: tensors\n{files}\noutputs: {{y: logits}}\n")

    (batch,) = read_manifest(tmp_path / "m.yaml").batches("validation", 20)

    assert batch.truths is not None
    assert len(batch.truths) == 10


def test_every_manifest_of_the_page_is_read(tmp_path: Path) -> None:
    for number, text in enumerate(blocks("yaml")):
        file = tmp_path / f"{number}.yaml"
        file.write_text(text)
        assert YAML(typ="safe").load(text)
        interface_of(read_yaml(file))
    first = tmp_path / "0.yaml"

    interface = read_interface(first)

    assert interface.state == (("stateN", "state"),)
    assert interface.inputs[0].constant == 16000


def test_the_page_names_every_meaning_option_and_metric() -> None:
    rows = {name for line in PAGE.splitlines() if line.startswith("| `") for name in re.findall(r"`(\w+)`", line)}
    assert rows >= set(MEANINGS)
    assert rows >= set(NAMED)
    assert all(f"`{name}`" in PAGE for name in WHOLE_SET)
