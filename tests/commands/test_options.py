"""Shares and durations given on the command line, and what commands say of the data and of what to type next."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.report.summaries import judge
from tests.tiny import write_model
from workbench.commands.options import next_lines, seconds, share
from workbench.evaluation.record import calibration_line
from workbench.graph.read import read_model
from workbench.quantization.observe import observe
from workbench.values.errors import ConfigError


def test_a_share_is_a_percentage_or_a_part_of_one_and_a_duration_has_a_unit() -> None:
    for text, value in (("20%", 0.2), ("0.2", 0.2), ("0", 0.0), ("1", 1.0), ("120%", 1.2)):
        assert math.isclose(share(text, "--headroom"), value)
    for text in ("much", "", "%", "30", "1.5", "-10%", "nan", "nan%", "inf%", "-0.1"):
        with pytest.raises(ConfigError, match=r"--headroom: .* is no share\. Write 20% or 0\.2\."):
            share(text, "--headroom")
    assert seconds("30m", "--timeout") == 1800.0
    with pytest.raises(ConfigError, match="--timeout: 'soon' is not a duration"):
        seconds("soon", "--timeout")


def test_calibration_that_hangs_on_a_few_samples_is_told(tmp_path: Path) -> None:
    write_model(tmp_path / "model.onnx")
    model = read_model(tmp_path / "model.onnx")
    rows = np.tile(np.random.default_rng(0).normal(size=(4, 16)).astype(np.float32), (16, 1))
    rows += np.linspace(0, 1e-4, rows.size, dtype=np.float32).reshape(rows.shape)  # no two are equal
    assert "64 samples are enough" in calibration_line(observe(model, [{"x": rows}]))
    rows[3] *= 20
    assert "ranges that a few of the 64 samples decide" in calibration_line(observe(model, [{"x": rows}]))


def test_after_a_sweep_the_next_commands_are_named_with_the_workspace_and_the_flag_they_need() -> None:
    found = judge()
    file = Path("my models/x.yaml")

    assert [line.split(":", 1)[1].strip() for line in next_lines(file, None, found)] == [
        "workbench show 'my models/x.yaml' -v",
        "workbench show 'my models/x.yaml' --html front.html",
        "workbench ui 'my models/x.yaml'",
        "workbench export 'my models/x.yaml' --to bundle",
    ]
    emulated = next_lines(file, Path("w"), replace(found, emulated=True))
    assert emulated[3].endswith("workbench export 'my models/x.yaml' --workspace w --to bundle --allow-emulated")
    assert len(next_lines(file, None, replace(found, recommended=None))) == 3
