"""The program `amct_onnx`: `calibration` quantizes a model in one go, `convert` imports a QDQ model (amct.md §1.4).

amct_onnx calibration --model=… --save_path=… --input_shape="n:16,3,224,224" --data_dir=… --data_types=float32
amct_onnx calibration --model=… --save_path=… --evaluator=evaluator.py
amct_onnx convert --model=… --save_path=…
"""

from __future__ import annotations

import argparse
import runpy
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import onnxruntime

from workbench.cann_emulator.amct_onnx import (
    AMCT_SO,
    convert_qat_model,
    create_quant_config,
    quantize_model,
    quantize_preprocess,
    save_model,
)
from workbench.cann_emulator.amct_onnx.common.cmd_line_utils.arguments_handler import (
    process_data_shape,
    process_multi_data_path,
)
from workbench.cann_emulator.amct_onnx.common.cmd_line_utils.data_handler import load_data
from workbench.cann_emulator.amct_onnx.configuration import read_quant_config
from workbench.cann_emulator.amct_onnx.layers import read_float_model
from workbench.cann_emulator.revision import emulator

_DATA = ("input_shape", "data_dir", "data_types")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; 0 when it succeeded. What the vendor's program prints and exits with is not known [inferred]."""
    parser = argparse.ArgumentParser(prog="amct_onnx", description=f"emulated: {emulator()}")
    commands = parser.add_subparsers(dest="command", required=True)
    calibration = commands.add_parser("calibration", help="quantize a float model")
    for name in ("model", "save_path"):
        calibration.add_argument(f"--{name}", required=True)
    for name in (*_DATA, "calibration_config", "evaluator"):
        calibration.add_argument(f"--{name}")
    calibration.add_argument("--batch_num", type=int)
    convert = commands.add_parser("convert", help="import a quantization-aware model")
    for name in ("model", "save_path"):
        convert.add_argument(f"--{name}", required=True)
    given = parser.parse_args(arguments)
    if given.command == "calibration":
        _check(calibration, given)
    try:
        if given.command == "convert":
            convert_qat_model(given.model, given.save_path)
        else:
            _calibrate(given)
    except (RuntimeError, ValueError, TypeError, OSError) as error:
        print(f"[ERROR] {error}", file=sys.stderr)
        return 1
    return 0


def _check(parser: argparse.ArgumentParser, given: argparse.Namespace) -> None:
    data = {name: getattr(given, name) for name in _DATA}
    if given.evaluator is not None:
        if extra := [name for name, value in data.items() if value is not None]:
            parser.error(f"--{extra[0]} cannot be used with --evaluator")
    elif missing := [name for name, value in data.items() if value is None]:
        parser.error(f"--{missing[0]} is required unless --evaluator is given")
    if given.calibration_config is not None and given.batch_num is not None:
        parser.error("--batch_num cannot be used with --calibration_config")


def _calibrate(given: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="amct_onnx_") as scratch:
        folder = Path(scratch)
        config, record, modified = folder / "config.json", folder / "record.txt", folder / "modified.onnx"
        create_quant_config(
            config, given.model, batch_num=given.batch_num or 1, config_defination=given.calibration_config
        )
        settings = read_quant_config(config, read_float_model(given.model))
        calibrate = _evaluator(given.evaluator) if given.evaluator else _data_runner(given, settings.batch_num)
        if any(layer.dmq_balancer_param is not None for layer in settings.layers.values()):
            quantize_preprocess(config, record, given.model, modified)
            calibrate(str(modified))
        quantize_model(config, given.model, modified, record)
        calibrate(str(modified))
        save_model(modified, record, given.save_path)


def _evaluator(path: str) -> Callable[[str], Any]:
    """`calibration` of the first instance that the user's module defines."""
    for value in runpy.run_path(path).values():
        if not isinstance(value, type) and callable(getattr(value, "calibration", None)):
            found: Callable[[str], Any] = value.calibration
            return found
    raise RuntimeError(f"{path} defines no instance of a class with a method calibration(self, modified_model).")


def _data_runner(given: argparse.Namespace, batch_num: int) -> Callable[[str], Any]:
    shapes = process_data_shape(given.input_shape)
    folders = process_multi_data_path(given.data_dir)
    types = [name for name in given.data_types.split(";") if name]
    if not len(shapes) == len(folders) == len(types):
        raise ValueError(
            f"input_shape names {len(shapes)} inputs, data_dir {len(folders)} folders, data_types {len(types)} types"
        )

    def calibrate(modified_model: str) -> None:
        session = onnxruntime.InferenceSession(modified_model, AMCT_SO)
        for feeds in load_data(shapes, folders, types, batch_num):
            session.run(None, feeds)

    return calibrate


if __name__ == "__main__":
    sys.exit(main())
