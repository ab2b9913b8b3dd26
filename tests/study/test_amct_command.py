"""`workbench calibrate`: AMCT's own files, as its users would make and check them."""

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.quantization import deploy_models
from tests.tiny import write_workspace
from workbench.study.amct_command import calibrate
from workbench.values.errors import ConfigError, ToolchainError

HFMG = "batch_num: 3\ncommon_config { arq_quantize { } hfmg_quantize { num_of_bins: 1024 asymmetric: false } }\n"


def scales_of(text: str) -> list[tuple[str, float]]:
    return [
        (key, float(value)) for key, value in re.findall(r"(scale_[dw]|offset_[dw]|tensor_balance_factor): (\S+)", text)
    ]


@pytest.fixture
def mlp(tmp_path: Path) -> tuple[Path, Path]:
    onnx.save(deploy_models.mlp(), tmp_path / "mlp.onnx")
    np.savez(tmp_path / "data.npz", *[deploy_models.data((16, 8), batch) for batch in range(3)])
    return tmp_path / "mlp.onnx", tmp_path / "data.npz"


def test_the_defaults_give_the_published_numbers_of_the_formula_model(mlp: tuple[Path, Path], tmp_path: Path) -> None:
    """amct.md §11, case G1."""
    done = calibrate(mlp[0], tmp_path / "out", data=mlp[1])

    numbers = scales_of((tmp_path / "out" / "record.txt").read_text())
    expected = [0.024950497, -18, 0.0024114174, 0, 0.003287937, -128, 0.002537183, 0]
    assert [value for _, value in numbers] == pytest.approx(expected, rel=2e-6)
    names = {"record.txt", "config.json", "mlp_deploy_model.onnx", "mlp_qdq_model.onnx", "record.json"}
    assert {file.name for file in done.files} == names
    assert json.loads((tmp_path / "out" / "config.json").read_text())["batch_num"] == 3
    assert done.agreement.cosine > 0.9995
    assert done.agreement.qdq_cosine > 0.999999
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == sorted(file.name for file in done.files)


def test_the_written_json_and_record_are_inputs_too(mlp: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "hfmg.cfg").write_text(HFMG)
    first = calibrate(mlp[0], tmp_path / "a", data=mlp[1], cfg=tmp_path / "hfmg.cfg")

    again = calibrate(mlp[0], tmp_path / "b", data=mlp[1], cfg=tmp_path / "a" / "config.json")
    lowered = calibrate(mlp[0], tmp_path / "c", record=tmp_path / "a" / "record.txt")

    assert again.record.layers == first.record.layers
    assert lowered.agreement is None
    for name in ("record.txt", "mlp_deploy_model.onnx", "mlp_qdq_model.onnx"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "c" / name).read_bytes()
    assert (tmp_path / "a" / "config.json").read_bytes() == (tmp_path / "b" / "config.json").read_bytes()


def test_fewer_batches_than_asked_for_is_an_error_and_leaves_nothing(mlp: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "many.cfg").write_text("batch_num: 4\n")

    with pytest.raises(ConfigError, match=r"many\.cfg: batch_num: batch_num is 4, data\.npz has 3 batches"):
        calibrate(mlp[0], tmp_path / "out", data=mlp[1], cfg=tmp_path / "many.cfg")

    with pytest.raises(ConfigError, match="calibration needs data"):
        calibrate(mlp[0], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_failure_while_writing_leaves_the_old_files_whole(
    mlp: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calibrate(mlp[0], tmp_path / "out", data=mlp[1])
    before = {p.name: p.read_bytes() for p in (tmp_path / "out").iterdir()}
    (tmp_path / "hfmg.cfg").write_text(HFMG)

    usual = Path.open

    def full(self: Path, *args: Any, **kwargs: Any) -> Any:
        if self.name.endswith("qdq_model.onnx") and "wb" in args:
            raise OSError(28, os.strerror(28))
        return usual(self, *args, **kwargs)

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(ToolchainError, match="cannot be written: No space left"):
        calibrate(mlp[0], tmp_path / "out", data=mlp[1], cfg=tmp_path / "hfmg.cfg")

    assert {p.name: p.read_bytes() for p in (tmp_path / "out").iterdir()} == before


def test_a_manifest_calibrates_with_two_batches_of_sixteen(tmp_path: Path) -> None:
    write_workspace(tmp_path)

    done = calibrate(tmp_path / "data" / "model.onnx", tmp_path / "out", data=tmp_path / "data" / "manifest.yaml")

    assert (done.batches, done.ignored) == (2, 0)
    assert len(done.record.layers) == 3
