"""What commands say about the data they were given."""

from pathlib import Path

import numpy as np
import pytest

from tests.tiny import write_model
from workbench.graph import read_model
from workbench.opening import calibration_line
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
