"""The benchmark of modelled times reads measured operators, and says where there are none."""

import csv
from pathlib import Path

import pytest

from benchmarks import timing_model
from benchmarks.measured_operators import read_cases

HEADER = [
    "id",
    "op",
    "kernel",
    "family",
    "in_shapes",
    "in_dtypes",
    "out_shapes",
    "out_dtypes",
    "attrs",
    "batch",
    "m",
    "n",
    "k",
    "time_us",
    "kernels",
    "window",
    "l2",
    "chip",
    "flags",
]
PRODUCT = {
    "id": "a",
    "op": "gemm",
    "kernel": "MatMul",
    "family": "matmul",
    "in_shapes": "[[2048,2048],[2048,2048]]",
    "in_dtypes": '["fp16","fp16"]',
    **dict.fromkeys(("m", "n", "k"), "2048"),
    "time_us": "80.8",
    "window": "K",
    "l2": "evicted",
    "chip": "910B3",
}
SCAN = {
    **PRODUCT,
    "id": "b",
    "op": "cummin",
    "kernel": "Cummin",
    "family": "scan",
    **dict.fromkeys(("m", "n", "k"), ""),
}


def folder_of(path: Path, *rows: dict[str, str]) -> Path:
    with (path / "rows.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, HEADER, restval="")
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_rows_without_a_counterpart_are_left_out_and_a_large_product_is_priced_as_measured(tmp_path: Path) -> None:
    (case,) = read_cases(folder_of(tmp_path, PRODUCT, SCAN))

    assert (case.name, case.error_class, case.soc) == ("a", "matmul", "Ascend910B3")
    assert timing_model.shipped(case) == pytest.approx(80.8, rel=0.2)


def test_a_folder_that_is_not_there_is_said_to_be_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert timing_model.main([str(tmp_path / "none")]) == 0
    assert "is not there, so nothing was compared" in capsys.readouterr().out
