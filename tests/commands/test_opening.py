"""What commands say about the data they were given, and what to do next."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.report.summaries import judge
from tests.tiny import write_model
from workbench.commands.options import next_lines
from workbench.evaluation.statistics import calibration_line
from workbench.graph.read import read_model
from workbench.quantization.observe import observe


@pytest.mark.parametrize(
    ("outlier", "expected"), [(None, "64 samples are enough"), (3, "ranges that a few of the 64 samples decide")]
)
def test_calibration_that_hangs_on_a_few_samples_is_told(tmp_path: Path, outlier: int | None, expected: str) -> None:
    write_model(tmp_path / "model.onnx")
    model = read_model(tmp_path / "model.onnx")
    rows = np.tile(np.random.default_rng(0).normal(size=(4, 16)).astype(np.float32), (16, 1))
    rows += np.linspace(0, 1e-4, rows.size, dtype=np.float32).reshape(rows.shape)  # no two are equal
    if outlier is not None:
        rows[outlier] *= 20

    line = calibration_line(observe(model, [{"x": rows}]))

    assert expected in line


def test_after_a_sweep_the_next_commands_are_named_with_the_workspace_and_the_flag_they_need() -> None:
    found = judge()
    file = Path("my models/x.yaml")

    assert [line.split(":", 1)[1].strip() for line in next_lines(file, None, found)] == [
        "workbench show 'my models/x.yaml' -v",
        "workbench ui 'my models/x.yaml'",
        "workbench export 'my models/x.yaml' --to bundle",
    ]
    emulated = next_lines(file, Path("w"), replace(found, emulated=True))
    assert emulated[2].endswith("workbench export 'my models/x.yaml' --workspace w --to bundle --allow-emulated")
    assert len(next_lines(file, None, replace(found, recommended=None))) == 2
